"""SMAC3 with ParEGO where it is installed: a random forest on a scalar of all objectives.

ParEGO (Knowles 2006) draws new weights for every batch of proposals. SMAC's own multi-fidelity
takes no part: it promotes what has ended, and replays resume nothing. The first proposals are as
many as of other searches, instead of a quarter of the budget.
"""

import importlib
import importlib.util
import logging
import shutil
import tempfile
import warnings
import weakref
from collections.abc import Sequence
from typing import Any, cast

from search.spaces import ChoiceDimension, Dimension
from tests.benchmarks.search_efficiency.peers import STARTUP, Observed, PeerSpace

_TRIALS = 100_000
"""As many as are never reached: who asks ends the search."""


def is_installed() -> bool:
    """Whether the peer can take part."""
    return importlib.util.find_spec("smac") is not None


class Smac:
    """One optimisation, asked and told; it is told nothing of what it did not propose."""

    def __init__(self, space: PeerSpace, seed: int) -> None:
        smac = cast(Any, importlib.import_module("smac"))
        self._runs = cast(Any, importlib.import_module("smac.runhistory"))
        self._space = space
        folder = tempfile.mkdtemp()
        weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
        objectives = ["error", *(f"cost {column}" for column in range(space.costs.shape[1]))]
        scenario = smac.Scenario(
            _configuration_space(space, seed),
            objectives=objectives,
            deterministic=True,
            n_trials=_TRIALS,
            output_directory=folder,
            seed=seed,
        )
        facade = smac.HyperparameterOptimizationFacade
        self._search = facade(
            scenario,
            target_function=_never_called,
            initial_design=facade.get_initial_design(scenario, n_configs=STARTUP),
            multi_objective_algorithm=facade.get_multi_objective_algorithm(scenario),
            logging_level=logging.ERROR,
        )
        self._asked: dict[int, Any] = {}
        """By the number that the evaluation has, if it was not refused; those not told yet."""
        self._newest: int | None = None

    def propose(self, observed: Sequence[Observed]) -> int:
        """Tell what has ended since, and ask."""
        for number in [number for number in self._asked if not observed[number].is_running]:
            seen = observed[number]
            cost = [seen.error, *self._space.costs[seen.row].tolist()]
            self._search.tell(self._asked.pop(number), self._runs.TrialValue(cost=cost))
        self._newest = len(observed)
        with warnings.catch_warnings():
            # It logs the mean time of local searches even where there was none.
            warnings.simplefilter("ignore", RuntimeWarning)
            self._asked[self._newest] = asked = self._search.ask()
        values = dict(asked.config)
        return self._space.row(
            {
                name: str(value)
                if isinstance(self._space.dimensions[name], ChoiceDimension)
                else int(value)
                for name, value in values.items()
            }
        )

    def refuse(self) -> None:
        """Tell that the newest proposal crashed."""
        assert self._newest is not None
        worst = [1.0] * (1 + self._space.costs.shape[1])
        crashed = self._runs.TrialValue(cost=worst, status=self._runs.StatusType.CRASHED)
        self._search.tell(self._asked.pop(self._newest), crashed)


def _configuration_space(space: PeerSpace, seed: int) -> Any:
    theirs = cast(Any, importlib.import_module("ConfigSpace"))

    def converted(name: str, dimension: Dimension) -> Any:
        if isinstance(dimension, ChoiceDimension):
            return theirs.CategoricalHyperparameter(name, list(dimension.options))
        return theirs.UniformIntegerHyperparameter(name, int(dimension.low), int(dimension.high))

    found = theirs.ConfigurationSpace(seed=seed)
    found.add(*(converted(name, each) for name, each in space.dimensions.items()))
    for name, needed in space.conditions.items():
        each = [theirs.EqualsCondition(found[name], found[other], one) for other, one in needed]
        found.add(each[0] if len(each) == 1 else theirs.OrConjunction(*each))
    return found


def _never_called(config: Any, seed: int = 0) -> list[float]:
    """SMAC wants a function even where it is asked and told."""
    raise NotImplementedError
