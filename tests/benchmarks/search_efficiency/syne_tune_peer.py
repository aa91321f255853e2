"""Syne Tune's MOASHA as it is shipped, where it is installed: a peer on a line of its own.

In version 0.16.0 it ranks wrongly. `NonDominatedPriority` returns the indices of the sorted points,
and the bracket reads them as each point's priority, which is the inverse permutation: the points
(5, 5), (4, 4), (3, 3), (1, 1), (2, 2) get the priorities 3, 4, 2, 1, 0. The peer that our rules are
compared with is therefore `search.stopping.MoAsha`.
"""

import importlib
import importlib.util
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, cast

import numpy as np

from tests.benchmarks.search_efficiency.replay import Trial
from tests.benchmarks.search_efficiency.table import Table

_METRICS = ["error", "parameters", "seconds_per_sample"]
_BEGINNING = datetime(2000, 1, 1, tzinfo=UTC)


def is_installed() -> bool:
    """Whether the peer can take part."""
    return importlib.util.find_spec("syne_tune") is not None


class SyneTuneMoAsha:
    """Its decisions; configurations are drawn by our random search, which draws as it would."""

    def __init__(self, table: Table, seed: int) -> None:
        package = "syne_tune.optimizer.schedulers.multiobjective.moasha"
        moasha = cast(Any, importlib.import_module(package))
        self._statuses = cast(Any, importlib.import_module("syne_tune.backend.trial_status"))
        # It draws brackets and the epsilon-net's points from numpy's global generator.
        np.random.seed(seed)
        self._scheduler = moasha.MOASHA(
            config_space={},
            metrics=_METRICS,
            time_attr="epoch",
            max_t=table.epochs,
            random_seed=seed,
        )
        self._table = table
        self._known: dict[int, Any] = {}

    def stops(self, trials: Sequence[Trial], trial: Trial) -> bool:
        """Report every epoch, as its tuner does."""
        del trials
        if trial.number not in self._known:
            theirs = self._statuses.Trial(trial.number, {}, _BEGINNING)
            self._known[trial.number] = theirs
            self._scheduler.on_trial_add(theirs)
        structure = trial.configuration.structure
        result = {
            "epoch": len(trial.accuracy),
            "error": 1 - trial.accuracy[-1],
            "parameters": float(self._table.parameters[structure]),
            "seconds_per_sample": 1 / float(self._table.samples_per_second[structure]),
        }
        return self._scheduler.on_trial_result(self._known[trial.number], result) == "STOP"
