"""Who searches: the project's samplers, each alone and with every stopping rule."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from search.samplers import (
    AnySampler,
    Branches,
    FreezeThaw,
    Gp,
    Knowledge,
    KnownCost,
    Nsga2,
    Nsga3,
    Random,
    Tpe,
)
from search.stopping import AnyStopping, Curve, MoAsha, ParetoGain, Standings
from search.stopping.curves import log_error
from search.stopping.pareto_gain import Fixed, Rate
from tests.benchmarks.search_efficiency import (
    botorch_peer,
    neps_peer,
    smac_peer,
    syne_tune_peer,
)
from tests.benchmarks.search_efficiency.peers import Peer, PeerSampler, PeerSpace, peer_space
from tests.benchmarks.search_efficiency.replay import Rule, Sampler, State, Trial
from tests.benchmarks.search_efficiency.spaces import SPACES
from tests.benchmarks.search_efficiency.studies import StudySampler, ranked_trials
from tests.benchmarks.search_efficiency.table import Table, read

_KNOWN_TRIALS = 40
"""Of the other table, where a search knows of it."""


class StoppingRule:
    """One of the project's rules, on the standings that a study would make."""

    def __init__(self, table: Table, rule: AnyStopping, *, seed: int) -> None:
        self._rule, self._epochs, self._seed = rule, table.epochs, seed
        self._rungs = frozenset(rule.rungs(table.epochs))
        self._costs = np.log10([table.parameters, 1 / table.samples_per_second]).T.tolist()
        self._ended: dict[int, Curve] = {}
        self._least_error = table.least_error
        self._baseline = log_error(table.space.metric.baseline, "maximize")
        self._most_parameters = math.log10(table.parameters.max())

    def stops(self, trials: Sequence[Trial], trial: Trial) -> bool:
        """Ask the rule where it judges."""
        epoch = len(trial.accuracy)
        if epoch not in self._rungs:
            return False
        # Diverged trials broke off for reasons of their own: no curve is compared with theirs.
        compared = [each for each in trials if each.accuracy and each.state is not State.DIVERGED]
        for each in compared:
            if each.number not in self._ended and each.ended_after is not None:
                self._ended[each.number] = self._curve(each)
        curves = {
            each.number: self._ended.get(each.number) or self._curve(each) for each in compared
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
                log_error(accuracy, "maximize", smallest=self._least_error)
                for accuracy in trial.accuracy
            ),
            costs=tuple(self._costs[trial.configuration.structure]),
            is_finished=trial.state is State.COMPLETE,
            ended_after=trial.ended_after,
        )


@dataclass(frozen=True)
class Contestant:
    """A sampler with or without a rule, by the name that the report has."""

    sampler: Callable[[Table, int], Sampler]
    rule: Callable[[Table, int], Rule] | None


def by_spec(sampler: AnySampler, rule: AnyStopping | None) -> Contestant:
    """The two as a study's document names them."""
    return Contestant(
        lambda table, seed: StudySampler(table, sampler, seed=seed),
        None if rule is None else lambda table, seed: StoppingRule(table, rule, seed=seed),
    )


def by_peer(
    make: Callable[[PeerSpace, int], Peer], rule: Callable[[Table, int], Rule] | None = None
) -> Contestant:
    """Another project's search, which is made of a space and a seed."""
    return Contestant(
        lambda table, seed: PeerSampler(table, make(peer_space(table), seed)),
        rule,
    )


def by_ranks(*, shuffled: bool = False) -> Contestant:
    """`freeze_thaw` with what full trainings of the other table tell by their ranks."""

    def sampler(table: Table, seed: int) -> StudySampler:
        other = next(space for name, space in SPACES.items() if name != table.space.name)
        known = ranked_trials(read(other), trials=_KNOWN_TRIALS, seed=seed, shuffled=shuffled)
        knowledge = Knowledge(ranked=[known])
        return StudySampler(table, FreezeThaw(), seed=seed, knowledge=knowledge)

    return Contestant(sampler, None)


_SAMPLERS: Mapping[str, AnySampler] = {
    "random": Random(),
    "tpe": Tpe(),
    "nsga2": Nsga2(),
    "nsga3": Nsga3(),
    "known_cost": KnownCost(),
    "branches": Branches(),
    "branches (gp)": Branches(sampler=Gp(startup_trials=3)),
}
_RULES: Mapping[str, AnyStopping | None] = {
    "": None,
    " + mo_asha": MoAsha(),
    " + pareto_gain": ParetoGain(threshold=Rate()),
    " + pareto_gain (fixed)": ParetoGain(threshold=Fixed()),
}

CONTESTANTS: dict[str, Contestant] = {
    f"{name}{suffix}": by_spec(sampler, rule)
    for name, sampler in _SAMPLERS.items()
    for suffix, rule in _RULES.items()
}
CONTESTANTS["freeze_thaw"] = by_spec(FreezeThaw(), None)
CONTESTANTS["freeze_thaw (ranks)"] = by_ranks()
CONTESTANTS["freeze_thaw (shuffled ranks)"] = by_ranks(shuffled=True)
CONTESTANTS["freeze_thaw (seconds)"] = by_spec(FreezeThaw(price="seconds"), None)
if syne_tune_peer.is_installed():
    CONTESTANTS["random + Syne Tune's MOASHA"] = Contestant(
        lambda table, seed: StudySampler(table, Random(), seed=seed), syne_tune_peer.SyneTuneMoAsha
    )
if botorch_peer.is_installed():
    CONTESTANTS["botorch"] = by_peer(botorch_peer.Botorch)
    CONTESTANTS["botorch + pareto_gain (fixed)"] = by_peer(
        botorch_peer.Botorch,
        lambda table, seed: StoppingRule(table, ParetoGain(threshold=Fixed()), seed=seed),
    )
if smac_peer.is_installed():
    CONTESTANTS["smac"] = by_peer(smac_peer.Smac)
if neps_peer.is_installed():
    CONTESTANTS["primo"] = Contestant(
        lambda table, seed: PeerSampler(
            table, neps_peer.Primo(peer_space(table), seed, epochs=table.epochs)
        ),
        lambda table, seed: neps_peer.FirstStage(
            StoppingRule(table, MoAsha(), seed=seed), peer_space(table), epochs=table.epochs
        ),
    )
BASELINE = "random"
"""Whose epochs all others' are a share of."""

PEERS = (
    "tpe",
    "botorch",
    "botorch + pareto_gain (fixed)",
    "smac",
    "primo",
)
"""Other projects' searches, of which those take part that are installed."""

PAIRS: tuple[tuple[str, str], ...] = (
    *(
        (f"{name}{suffix}", f"{name} + mo_asha")
        for name in _SAMPLERS
        for suffix in (" + pareto_gain", " + pareto_gain (fixed)")
    ),
    ("freeze_thaw", "known_cost"),
    ("freeze_thaw", "known_cost + pareto_gain (fixed)"),
    ("freeze_thaw", "tpe + pareto_gain (fixed)"),
    ("freeze_thaw (ranks)", "freeze_thaw"),
    ("freeze_thaw (shuffled ranks)", "freeze_thaw"),
    ("freeze_thaw", "nsga2"),
    ("freeze_thaw", "random + mo_asha"),
    ("freeze_thaw", "tpe + mo_asha"),
    ("nsga3", "nsga2"),
    ("branches", "tpe"),
    ("branches + pareto_gain (fixed)", "tpe + pareto_gain (fixed)"),
    ("branches (gp)", "tpe"),
    ("branches (gp)", "known_cost"),
    *(
        (own, peer)
        for own in ("freeze_thaw", "known_cost", "known_cost + pareto_gain (fixed)")
        for peer in PEERS
        if peer in CONTESTANTS
    ),
)
"""Each of our rules, and the peer's with the same sampler and the same seeds; samplers beside what
they are made of; and what is recommended beside other projects' searches."""
