"""Who searches: the project's samplers and stopping rules, driven as a coordinator does it."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import optuna
from optuna.samplers import BaseSampler

from search.mirror import sampler_seed
from search.samplers import Nsga2, Random, Tpe
from search.samplers.known_cost import KnownCost
from search.stopping import AnyStopping, Curve, MoAsha, ParetoGain, Standings
from search.stopping.curves import log_error
from search.stopping.pareto_gain import Fixed
from search.tasks import Digits
from tests.benchmarks.search_efficiency.known_costs import KnownCosts
from tests.benchmarks.search_efficiency.replay import (
    LEAST_ERROR,
    Configuration,
    Rule,
    Sampler,
    State,
    Trial,
)
from tests.benchmarks.search_efficiency.table import (
    ARCHITECTURES,
    LEARNING_RATES,
    LEVELS,
    PARAMETRIZATIONS,
    SIZES,
    Structure,
    Table,
)


class OptunaSampler:
    """One of the project's samplers over Optuna.

    As in the coordinator, each suggestion has a sampler and a seed of its own, a complete trial is
    told its values and a stopped one that it was pruned. Sizes and learning rates are dimensions of
    equal steps, levels belong to their parametrization.
    """

    def __init__(self, table: Table, build: Callable[[int], BaseSampler], *, seed: int) -> None:
        self._table, self._build, self._seed = table, build, seed
        self._structures = {structure: i for i, structure in enumerate(table.structures)}
        self._study = optuna.create_study(directions=["maximize", "minimize", "maximize"])
        self._by_number: dict[int, optuna.Trial] = {}

    def propose(self, trials: Sequence[Trial]) -> Configuration:
        """Ask Optuna; the replay numbers what it takes."""
        number = len(self._study.get_trials(deepcopy=False))
        self._study.sampler = self._build(sampler_seed(self._seed, number))
        trial = self._study.ask()
        architecture = trial.suggest_categorical("architecture", ARCHITECTURES)
        size = SIZES[trial.suggest_int("hidden_size", 0, len(SIZES) - 1)]
        parametrization = trial.suggest_categorical("parametrization", PARAMETRIZATIONS)
        level = (
            0
            if parametrization == "dense"
            else trial.suggest_int(f"{parametrization}.level", 0, LEVELS - 1)
        )
        learning_rate = trial.suggest_int("learning_rate", 0, len(LEARNING_RATES) - 1)
        self._by_number[len(trials)] = trial
        structure = Structure(architecture, size, parametrization, level)
        return Configuration(self._structures[structure], learning_rate)

    def refuse(self) -> None:
        """Tell that the newest proposal failed."""
        _, trial = self._by_number.popitem()
        self._study.tell(trial, state=optuna.trial.TrialState.FAIL)

    def ended(self, trial: Trial) -> None:
        """Tell how a trial ended; one that was not proposed here is not told."""
        asked = self._by_number.get(trial.number)
        if asked is None:
            return
        if trial.state is State.STOPPED:
            self._study.tell(asked, state=optuna.trial.TrialState.PRUNED)
            return
        structure = trial.configuration.structure
        self._study.tell(
            asked,
            [
                trial.accuracy[-1],
                float(self._table.parameters[structure]),
                float(self._table.samples_per_second[structure]),
            ],
        )


class StoppingRule:
    """One of the project's rules, on the standings that `search.early_stopping` would make."""

    def __init__(self, table: Table, rule: AnyStopping, *, seed: int) -> None:
        self._rule, self._epochs, self._seed = rule, table.epochs, seed
        self._rungs = frozenset(rule.rungs(table.epochs))
        self._costs = np.log10([table.parameters, 1 / table.samples_per_second]).T.tolist()
        self._ended: dict[int, Curve] = {}
        self._baseline = log_error(Digits().metric.baseline, "maximize")
        self._most_parameters = math.log10(table.parameters.max())

    def stops(self, trials: Sequence[Trial], trial: Trial) -> bool:
        """Ask the rule where it judges."""
        epoch = len(trial.accuracy)
        if epoch not in self._rungs:
            return False
        for each in trials:
            if each.number not in self._ended and each.ended_after is not None:
                self._ended[each.number] = self._curve(each)
        curves = {
            each.number: self._ended.get(each.number) or self._curve(each)
            for each in trials
            if each.accuracy
        }
        # The metric's baseline, the largest count of the space, half the slowest trial's speed.
        slowest = max(self._costs[each.configuration.structure][1] for each in trials)
        reference = (self._baseline, self._most_parameters, slowest + math.log10(2))
        standings = Standings(curves, reference, self._epochs, self._seed)
        return self._rule.decide(standings, trial.number, epoch).stop

    def _curve(self, trial: Trial) -> Curve:
        return Curve(
            number=trial.number,
            errors=tuple(
                log_error(accuracy, "maximize", smallest=LEAST_ERROR) for accuracy in trial.accuracy
            ),
            costs=tuple(self._costs[trial.configuration.structure]),
            is_finished=trial.state is State.COMPLETE,
            ended_after=trial.ended_after,
        )


@dataclass(frozen=True)
class Contestant:
    """A sampler with or without a rule, by the name that the report has."""

    sampler: Callable[[Table, int], Sampler]
    rule: AnyStopping | None

    def rule_for(self, table: Table, seed: int) -> Rule | None:
        """A fresh rule for one search."""
        return None if self.rule is None else StoppingRule(table, self.rule, seed=seed)


def _by_optuna(build: Callable[[int], BaseSampler]) -> Callable[[Table, int], Sampler]:
    return lambda table, seed: OptunaSampler(table, build, seed=seed)


_SAMPLERS: Mapping[str, Callable[[Table, int], Sampler]] = {
    "random": _by_optuna(Random().build),
    "tpe": _by_optuna(Tpe().build),
    "nsga2": _by_optuna(Nsga2().build),
    "known_cost": lambda table, seed: KnownCosts(table, KnownCost(), seed=seed),
}
_RULES: Mapping[str, AnyStopping | None] = {
    "": None,
    " + mo_asha": MoAsha(),
    " + pareto_gain": ParetoGain(),
    " + pareto_gain (fixed)": ParetoGain(threshold=Fixed()),
}
_LEFT_OUT: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(("random", "tpe", "nsga2"), (" + pareto_gain (fixed)",)),
    "known_cost": (" + mo_asha",),
}
"""The fixed threshold is meant for samplers that know costs, which a quota suits least."""

CONTESTANTS: Mapping[str, Contestant] = {
    f"{sampler}{rule}": Contestant(build, _RULES[rule])
    for sampler, build in _SAMPLERS.items()
    for rule in _RULES
    if rule not in _LEFT_OUT.get(sampler, ())
}
BASELINE = "random"
"""Whose epochs all others' are a share of."""
