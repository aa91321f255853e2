"""Which points of a front are trained further."""

from dataclasses import replace

import pytest

from search.graphs.fine_tune import FineTune
from search.sampling.fine_tuning import spread
from storage.records import TrialState
from tests.storage.records import trial as trial_record


@pytest.mark.parametrize(
    ("points", "wanted"),
    [
        (1, [70]),
        (2, [70, 0]),
        (3, [70, 30, 0]),
        (8, [70, 60, 50, 40, 30, 20, 10, 0]),
        (100, [70, 60, 50, 40, 30, 20, 10, 0]),
    ],
)
def test_points_are_spread_over_the_sizes_of_a_front(points: int, wanted: list[int]) -> None:
    records = [trial_record("s", number, state=TrialState.COMPLETE) for number in range(8)]
    # The first trial has the largest file.
    front = [replace(record, bytes=100 - 10 * record.number) for record in records]
    found = spread(front, FineTune(points=points))
    assert [10 * trial.number for trial in found] == wanted


def test_an_empty_front_has_no_points() -> None:
    assert spread([], FineTune()) == []
