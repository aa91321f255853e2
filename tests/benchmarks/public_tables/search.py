"""A search on a public table, one evaluation after the other, and what it is worth."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import moocore
import numpy as np

from tests.benchmarks.public_tables.tables import PublicTable

METRICS = ("linear", "logarithmic")
"""Hypervolumes with the error itself, from the median of all configurations, and with its
logarithm, from the baseline; costs are logarithmic in both, from 1.1 times the table's largest."""

_MARGIN = 1.1
_REFUSALS = 3


@dataclass(frozen=True)
class Evaluation:
    """One full training."""

    row: int
    quality: float


class Searcher(Protocol):
    """Chooses rows."""

    def propose(self, evaluations: Sequence[Evaluation]) -> int:
        """The next row, given every evaluation so far."""
        ...

    def refuse(self) -> None:
        """The proposal was evaluated before: it failed, and another will be asked for."""
        ...


def search(
    table: PublicTable, searcher: Searcher, *, seed: int, evaluations: int
) -> tuple[int, ...]:
    """The rows that are evaluated, each once and in their order.

    An evaluation is one of the trainings that the table has of a row. A row that is proposed again
    is refused; after `_REFUSALS` refusals one at random is taken.
    """
    random = np.random.default_rng(seed)
    done: list[Evaluation] = []
    fresh = np.ones(len(table.values), bool)
    while len(done) < min(evaluations, len(fresh)):
        row = _next(searcher, done, fresh)
        if row is None:
            row = int(random.choice(np.flatnonzero(fresh)))
        fresh[row] = False
        trained = table.quality[row][~np.isnan(table.quality[row])]
        done.append(Evaluation(row, float(random.choice(trained))))
    return tuple(each.row for each in done)


class Hypervolumes:
    """Hypervolumes of rows, as shares of the whole table's, by metric."""

    def __init__(self, table: PublicTable) -> None:
        self._costs = table.costs
        self._worst_costs = table.costs.max(axis=0) + np.log10(_MARGIN)
        baseline = table.error_of(np.array([table.metric.baseline]))
        self._axes = {
            "linear": (table.errors, float(np.median(table.errors))),
            "logarithmic": (np.log(table.errors), float(np.log(baseline[0]))),
        }
        points = np.column_stack([table.errors, table.costs])
        self.front = np.flatnonzero(moocore.is_nondominated(points))
        """Rows that no other dominates."""
        self._whole = {metric: self._volume(metric, self.front.tolist()) for metric in METRICS}

    def of(self, rows: Sequence[int]) -> Mapping[str, float]:
        """By metric; a row counts with the mean error of its trainings."""
        return {metric: self._volume(metric, rows) / self._whole[metric] for metric in METRICS}

    def _volume(self, metric: str, rows: Sequence[int]) -> float:
        errors, reference = self._axes[metric]
        points = np.column_stack([errors[list(rows)], self._costs[list(rows)]])
        return float(moocore.hypervolume(points, ref=[reference, *self._worst_costs]))


def _next(searcher: Searcher, done: Sequence[Evaluation], fresh: np.ndarray) -> int | None:
    for _ in range(_REFUSALS):
        row = searcher.propose(done)
        if fresh[row]:
            return row
        searcher.refuse()
    return None
