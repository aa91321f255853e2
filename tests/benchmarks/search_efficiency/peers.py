"""Other projects' searches: the finite space that they are given, and how a replay asks them.

A peer is told natural logarithms of errors and decades of costs, all minimised, and so searches on
the axes that are counted. Integers stand for the steps of a table's grid.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from search.samplers.modelling.encoding import Encoding, values_of_draw
from search.spaces import ChoiceDimension, Dimension, Scalar
from tests.benchmarks.search_efficiency.replay import Configuration, State, Trial
from tests.benchmarks.search_efficiency.studies import TableSpace
from tests.benchmarks.search_efficiency.table import Table

STARTUP = 10
"""Evaluations before a peer's model is used, as many as of the project's own samplers."""

_RIDGE = 0.1
"""Penalty on the slopes of predicted costs, in units of one observation."""


@dataclass(frozen=True, kw_only=True)
class PeerSpace:
    """Rows of a table, N in all, each by its values.

    Letters: N rows, D features, C costs.
    """

    dimensions: Mapping[str, Dimension]
    conditions: Mapping[str, Sequence[tuple[str, Scalar]]]
    """Dimension -> others, each with an option of it: the dimension is there with any of these.

    `dimensions` has the others before it.
    """
    values: Sequence[Mapping[str, Scalar]]
    """By row; without the dimensions that the row lacks."""
    features: NDArray[np.float64]
    """[N, D], from 0 to 1."""
    costs: NDArray[np.float64]
    """[N, C], decades, minimised."""
    is_exact: tuple[bool, ...]
    """[C]: whether a cost is known of every row beforehand, or of those alone that were seen."""
    reference_error: float
    """Natural logarithm of the error from which a hypervolume is worth anything."""

    @cached_property
    def _rows(self) -> Mapping[frozenset[tuple[str, Scalar]], int]:
        return {frozenset(values.items()): row for row, values in enumerate(self.values)}

    def row(self, values: Mapping[str, Scalar]) -> int:
        """The row with these values; what its other values leave no room for is ignored."""
        there: dict[str, Scalar] = {}
        for name in self.dimensions:
            needed = self.conditions.get(name)
            if needed is None or any(there.get(other) == option for other, option in needed):
                there[name] = values[name]
        return self._rows[frozenset(there.items())]

    def neighbours(self, row: int) -> Iterator[int]:
        """Rows that differ in one value; of integers, by one step."""
        own = self.values[row]
        for name, value in own.items():
            dimension = self.dimensions[name]
            if isinstance(dimension, ChoiceDimension):
                others: Sequence[Scalar] = dimension.options
            else:
                others = [int(value) - 1, int(value) + 1]
            for other in others:
                found = self._rows.get(frozenset({**own, name: other}.items()))
                if found is not None and found != row:
                    yield found

    def known_costs(self, seen: Sequence[int]) -> NDArray[np.float64]:
        """Costs `[N, C]` as they are known once some rows were seen.

        Where a cost is measured it is predicted of the others, by ridge regression on the features
        and the exact costs.
        """
        known = self.costs.copy()
        at, others = np.unique(seen), np.setdiff1d(np.arange(len(known)), seen)
        inputs = np.hstack([self.features, self.costs[:, list(self.is_exact)]])
        centre = inputs[at].mean(axis=0)
        for column in np.flatnonzero(~np.array(self.is_exact)):
            level = self.costs[at, column].mean()
            rows = inputs[at] - centre
            normal = rows.T @ rows + _RIDGE * np.eye(rows.shape[1])
            slopes = np.linalg.solve(normal, rows.T @ (self.costs[at, column] - level))
            known[others, column] = level + (inputs[others] - centre) @ slopes
        return known


@dataclass(frozen=True, kw_only=True)
class Observed:
    """What a peer is told of one evaluation."""

    row: int
    error: float
    """Natural logarithm of the error reached so far; NaN before the first epoch."""
    is_running: bool
    is_finished: bool
    """Whether it was trained to its end; neither this nor running: it was stopped."""
    epochs: int


class Peer(Protocol):
    """Another project's search."""

    def propose(self, observed: Sequence[Observed]) -> int:
        """The row to evaluate next, given every evaluation so far in the order of their start."""
        ...

    def refuse(self) -> None:
        """The proposal cannot be evaluated again: it failed, and another will be asked for."""
        ...


def peer_space(table: Table) -> PeerSpace:
    """A table of curves as peers are given it: each structure with each learning rate."""
    space = TableSpace(table)
    configurations = _configurations(table)
    draws = [space.at(configuration) for configuration in configurations]
    costs = np.log10([table.parameters, 1 / table.samples_per_second]).T
    return PeerSpace(
        dimensions=space.dimensions,
        conditions=space.conditions,
        values=[draw.drawn for draw in draws],
        features=to_unit(Encoding(space.dimensions).rows(map(values_of_draw, draws))),
        costs=costs[[each.structure for each in configurations]],
        is_exact=(True, False),
        # From where M2 counts: peers are given the metric's own reference.
        reference_error=math.log(0.5),
    )


def to_unit(columns: NDArray[np.float64]) -> NDArray[np.float64]:
    """Each column `[N, D]` from 0 to 1; of a single value, 0."""
    low, span = columns.min(axis=0), np.ptp(columns, axis=0)
    return (columns - low) / np.where(span > 0, span, 1.0)


class PeerSampler:
    """A peer as a replay asks it."""

    def __init__(self, table: Table, peer: Peer) -> None:
        self._configurations = _configurations(table)
        self._rows = {each: row for row, each in enumerate(self._configurations)}
        self._least_error = table.least_error
        self._baseline = table.space.metric.baseline
        self._peer = peer

    def propose(self, trials: Sequence[Trial]) -> Configuration:
        """Ask the peer."""
        return self._configurations[self._peer.propose([self._observed(each) for each in trials])]

    def refuse(self) -> None:
        """Tell the peer."""
        self._peer.refuse()

    def ended(self, trial: Trial) -> None:
        """Nothing: the next proposal is told of all trials."""

    def _observed(self, trial: Trial) -> Observed:
        error = math.nan
        if trial.state is State.DIVERGED:
            # Peers know no trial that came to nothing: it has learned nothing.
            error = math.log(1 - self._baseline)
        elif trial.accuracy:
            error = math.log(max(1 - trial.accuracy[-1], self._least_error))
        return Observed(
            row=self._rows[trial.configuration],
            error=error,
            is_running=trial.state is State.RUNNING,
            is_finished=trial.state is State.COMPLETE,
            epochs=len(trial.accuracy),
        )


def _configurations(table: Table) -> list[Configuration]:
    """By row."""
    return [
        Configuration(structure, learning_rate)
        for structure in range(len(table.structures))
        for learning_rate in range(len(table.space.learning_rates))
    ]
