"""Other projects' searches are given the table as it is, and are asked for rows of it."""

import math
from collections.abc import Sequence

import numpy as np
import pytest

from search.spaces import ChoiceDimension, IntegerDimension
from tests.benchmarks.search_efficiency.contestants import CONTESTANTS, PEERS
from tests.benchmarks.search_efficiency.neps_peer import FirstStage
from tests.benchmarks.search_efficiency.peers import (
    Observed,
    PeerSampler,
    PeerSpace,
    peer_space,
    to_unit,
)
from tests.benchmarks.search_efficiency.replay import Configuration, State, Trial
from tests.benchmarks.search_efficiency.spaces import SPACES
from tests.benchmarks.search_efficiency.table import Table, read


@pytest.fixture(scope="module")
def table() -> Table:
    return read(SPACES["digits"])


@pytest.fixture
def space() -> PeerSpace:
    """A kind, and a level that one of two kinds has; the second cost is twice the first."""
    values = [{"kind": "plain"}, *({"kind": "levelled", "level": level} for level in range(5))]
    sizes = np.arange(6.0)
    return PeerSpace(
        dimensions={
            "kind": ChoiceDimension(name="kind", options=("plain", "levelled")),
            "level": IntegerDimension(name="level", low=0, high=4),
        },
        conditions={"level": [("kind", "levelled")]},
        values=values,
        features=to_unit(sizes[:, None]),
        costs=np.column_stack([sizes, 2 * sizes]),
        is_exact=(True, False),
        reference_error=0.0,
    )


class Noting:
    """Proposes a row and keeps what it was told."""

    def __init__(self, row: int) -> None:
        self._row = row
        self.told: list[Sequence[Observed]] = []

    def propose(self, observed: Sequence[Observed]) -> int:
        self.told.append(observed)
        return self._row

    def refuse(self) -> None:
        raise AssertionError("nothing was refused")


class StopsAll:
    def stops(self, trials: Sequence[Trial], trial: Trial) -> bool:
        del trials, trial
        return True


def test_a_row_is_found_by_its_values_and_without_those_that_it_lacks(space: PeerSpace) -> None:
    assert [space.row(values) for values in space.values] == list(range(6))
    assert space.row({"kind": "plain", "level": 3}) == 0


def test_neighbours_differ_in_one_value(space: PeerSpace) -> None:
    assert sorted(space.neighbours(1)) == [2]
    assert sorted(space.neighbours(3)) == [2, 4]
    assert list(space.neighbours(0)) == []


def test_what_was_seen_is_measured_and_the_rest_is_predicted(space: PeerSpace) -> None:
    known = space.known_costs([1, 3, 3, 5])
    assert (known[:, 0] == space.costs[:, 0]).all()
    assert (known[[1, 3, 5]] == space.costs[[1, 3, 5]]).all()
    # Costs that are a line in what is known are predicted nearly, less the ridge's penalty.
    predicted = known[[0, 2, 4], 1]
    assert predicted == pytest.approx(space.costs[[0, 2, 4], 1], abs=0.3)
    assert (predicted != space.costs[[0, 2, 4], 1]).all()


def test_every_configuration_of_a_table_is_a_row(table: Table) -> None:
    space = peer_space(table)
    assert [space.row(values) for values in space.values] == list(range(table.configurations))
    assert space.costs.shape == (table.configurations, 2)
    assert (space.features.min(), space.features.max()) == (0, 1)


def test_a_peer_is_told_errors_and_states(table: Table) -> None:
    peer = Noting(9)
    rates = len(table.space.learning_rates)
    chosen = Configuration(9 // rates, 9 % rates)
    trials = [
        Trial(0, Configuration(0, 1), 0, accuracy=[0.5, 0.75], state=State.COMPLETE),
        Trial(1, chosen, 0, accuracy=[0.25], state=State.STOPPED),
        Trial(2, chosen, 1),
    ]
    assert PeerSampler(table, peer).propose(trials) == chosen
    [[complete, stopped, running]] = peer.told
    assert (complete.row, complete.error, complete.epochs) == (1, math.log(0.25), 2)
    assert (stopped.row, stopped.error) == (9, math.log(0.75))
    assert math.isnan(running.error)
    flags = [(each.is_running, each.is_finished) for each in (complete, stopped, running)]
    assert flags == [(False, True), (False, False), (True, False)]


def test_primo_stops_for_as_long_as_one_training_per_dimension(space: PeerSpace) -> None:
    rule = FirstStage(StopsAll(), space, epochs=3)
    short, last = Trial(0, Configuration(0, 0), 0, [0.5] * 2), Trial(1, Configuration(0, 1), 0)
    assert rule.stops([short, last], last)
    last.accuracy = [0.5] * 3
    assert rule.stops([short, last], last)
    last.accuracy = [0.5] * 4  # six epochs are those of two dimensions
    assert not rule.stops([short, last], last)


@pytest.mark.parametrize("name", [name for name in PEERS if name in CONTESTANTS])
def test_a_peer_goes_on_after_its_start(name: str, table: Table) -> None:
    """It proposes configurations of the table that it was not told of."""
    sampler = CONTESTANTS[name].sampler(table, 3)
    trials: list[Trial] = []
    for number in range(12):
        configuration = sampler.propose(trials)
        row = configuration.structure, configuration.learning_rate
        trials.append(
            Trial(
                number,
                configuration,
                0,
                accuracy=table.accuracy[(*row, 0)].tolist(),
                state=State.COMPLETE,
                ended_after=(number + 1) * table.epochs,
            )
        )
        sampler.ended(trials[-1])
    assert trials[-1].configuration not in [trial.configuration for trial in trials[:-1]]
