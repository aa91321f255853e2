"""Fronts and hypervolumes against brute force."""

import itertools
import math
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from search.documents.objectives import USUAL_OBJECTIVES, Objective
from search.fronts.dominance import front_of
from search.fronts.pareto import hypervolume, objective_infos, reference_point
from search.studies.spec import StudySpec
from storage.records import TrialOrigin, TrialRecord, TrialState
from tests.storage.records import trial

SPEC = StudySpec.model_validate({"task": {"kind": "digits"}})
# Few distinct values, so that ties and duplicates are the normal case.
TRIALS = st.lists(
    st.tuples(
        st.integers(0, 4).map(lambda n: n / 4),
        st.integers(1, 5),
        st.integers(1, 4).map(float) | st.none(),
        st.sampled_from([TrialState.COMPLETE, TrialState.COMPLETE, TrialState.STOPPED]),
    ),
    max_size=12,
)
WANTED = st.lists(st.sampled_from(USUAL_OBJECTIVES), min_size=1, unique=True)


def trials_of(rows: list[tuple[float, int, float | None, TrialState]]) -> list[TrialRecord]:
    return [
        trial("s", number, quality=quality, parameters=count, throughput=speed, state=state)
        for number, (quality, count, speed, state) in enumerate(rows)
    ]


def cost(trial: TrialRecord, objective: Objective) -> float | None:
    """The value with smaller meaning better, written down apart from the code under test."""
    return {
        "quality": None if trial.quality is None else -trial.quality,
        "parameters": trial.parameters,
        "throughput": None if trial.throughput is None else -trial.throughput,
    }[objective]


def brute_force(trials: list[TrialRecord], objectives: list[Objective]) -> list[int]:
    rows = {
        trial.number: [cost(trial, objective) for objective in objectives]
        for trial in trials
        if trial.state == TrialState.COMPLETE
    }
    rows = {number: row for number, row in rows.items() if None not in row}
    return [
        number
        for number, row in rows.items()
        if not any(
            other != row and all(a <= b for a, b in zip(other, row, strict=True))
            for other in rows.values()
        )
    ]


@given(TRIALS, WANTED)
@settings(max_examples=300, deadline=None)
def test_front_is_what_brute_force_finds_with_all_ties(rows, objectives) -> None:
    trials = trials_of(rows)
    infos = objective_infos(SPEC.task, objectives)
    assert [trial.number for trial in front_of(trials, infos)] == brute_force(trials, objectives)


@given(TRIALS)
@settings(max_examples=100, deadline=None)
def test_hypervolume_is_the_measure_of_the_dominated_cells(rows) -> None:
    """Oracle.

    Cut the space into the cells that the points' coordinates span, and add up the covered ones.
    """
    trials = trials_of(rows)
    infos = objective_infos(SPEC.task, USUAL_OBJECTIVES)
    reference = {"quality": 0.1, "parameters": 10.0, "throughput": 1.0}
    corners = [
        (-trial.quality, math.log10(trial.parameters), -math.log10(trial.throughput))
        for trial in trials
        if trial.state == TrialState.COMPLETE
        and trial.throughput is not None
        and trial.quality is not None
    ]
    far = (-0.1, 1.0, 0.0)
    axes = [
        sorted({far[axis], *(corner[axis] for corner in corners if corner[axis] < far[axis])})
        for axis in range(3)
    ]
    volume = 0.0
    for cell in itertools.product(*(itertools.pairwise(axis) for axis in axes)):
        low = [edge[0] for edge in cell]
        if any(all(c <= x for c, x in zip(corner, low, strict=True)) for corner in corners):
            volume += math.prod(edge[1] - edge[0] for edge in cell)
    measured = hypervolume(trials, infos, reference)
    assert measured == pytest.approx(volume, abs=1e-12)


def test_one_objective_has_no_hypervolume() -> None:
    infos = objective_infos(SPEC.task, ("quality",))
    assert hypervolume([], infos, {"quality": 0.1}) is None


def test_reference_point_is_the_baseline_the_limit_and_one_sample_per_second() -> None:
    limited = SPEC.model_validate({**SPEC.model_dump(), "limits": {"parameters": 500}})
    assert reference_point(limited, largest_count=9000) == {
        "quality": SPEC.task.metric.baseline,
        "parameters": 500.0,
        "throughput": 1.0,
    }
    assert reference_point(SPEC, largest_count=9000)["parameters"] == 9000.0


def test_a_training_that_brought_nothing_is_not_beside_its_point() -> None:
    """Its file is the point's own; one that was better after an epoch is a point of its own."""
    point = trial("s", 0, quality=0.5, parameters=10, throughput=1.0, state=TrialState.COMPLETE)
    trained = replace(point, number=1, origin=TrialOrigin.FINE_TUNING, continues=0, best_epoch=0)
    also = replace(trained, number=2, best_epoch=3)
    infos = objective_infos(SPEC.task, USUAL_OBJECTIVES)
    # What the search itself was best after is no matter.
    first = replace(point, best_epoch=0)
    assert [one.number for one in front_of([first, trained, also], infos)] == [0, 2]
