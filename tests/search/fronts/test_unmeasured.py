"""Which unmeasured trials may be on a front: all that would be, were they as good as they may."""

import random
from dataclasses import replace
from typing import Any

import pytest

from search.documents.objectives import OBJECTIVE_KINDS
from search.fronts import best_ends, front_of, may_be_on_front, may_join, middles, objective_infos
from search.fronts.retention import kept_by
from search.studies import StudySpec
from storage.records import ThroughputKind, TrialOrigin, TrialRecord, TrialState
from tests.storage.records import trial

SPEC = StudySpec.model_validate({"task": {"kind": "digits"}})
INFOS = objective_infos(SPEC.task, SPEC.objectives)
THROUGHPUT = OBJECTIVE_KINDS["throughput"]


def ended(number: int, quality: float, parameters: int, **given: Any) -> TrialRecord:
    state = TrialState.COMPLETE
    return trial("s", number, state=state, quality=quality, parameters=parameters, **given)


def measured(number: int, quality: float, parameters: int, speed: float) -> TrialRecord:
    return ended(number, quality, parameters, throughput=speed, measurement_id=f"m{number}")


def predicted(number: int, quality: float, parameters: int, *speeds: float) -> TrialRecord:
    return ended(number, quality, parameters, predicted={"throughput": [*speeds]})


def numbers(trials: list[TrialRecord]) -> list[int]:
    return [one.number for one in trials]


def guesses(*trials: TrialRecord) -> dict[int, dict[str, list[float]]]:
    return {one.number: one.predicted for one in trials}


def test_a_trial_stays_out_where_its_better_end_is_dominated() -> None:
    best = measured(0, 0.9, 100, 1000.0)
    slow, fast = predicted(1, 0.8, 200, 500.0, 400.0, 900.0), predicted(2, 0.8, 200, 900, 800, 1100)
    trials = [best, slow, fast]
    found = guesses(slow, fast)
    assert numbers(may_join(trials, INFOS, best_ends(found))) == [2]
    assert numbers(may_join(trials, INFOS, middles(found))) == []
    # What was never predicted may be anything.
    assert numbers(may_join(trials, INFOS, best_ends({}))) == [1, 2]
    # A later prediction may say more than the stored one; files are kept so long.
    assert numbers(may_be_on_front(trials, INFOS)) == [1, 2]
    assert numbers(may_be_on_front([measured(0, 0.9, 100, 2000.0), slow], INFOS)) == []


def test_only_what_lacks_a_measurement_and_nothing_else_may_join() -> None:
    bare = predicted(0, 0.9, 100, 500.0, 400.0, 600.0)
    others = [
        replace(bare, number=1, state=TrialState.STOPPED),
        replace(bare, number=2, origin=TrialOrigin.CONFIRMATION),
        replace(bare, number=3, violation=0.5),
        replace(bare, number=4, quality=None),
        measured(5, 0.1, 1000, 1.0),
    ]
    assert numbers(may_be_on_front([bare, *others], INFOS)) == [0]
    # Where speed is no objective nothing is missing, and the front is known.
    known = objective_infos(SPEC.task, ("quality", "parameters"))
    assert may_be_on_front([bare], known) == []
    assert numbers(front_of([bare], known)) == [0]


def test_of_two_guesses_one_may_dominate_the_other() -> None:
    good, bad = predicted(0, 0.9, 100, 500, 400, 600), predicted(1, 0.8, 100, 450, 350, 550)
    found = guesses(good, bad)
    assert numbers(may_join([good, bad], INFOS, middles(found))) == [0, 1]
    assert numbers(may_join([good, bad], INFOS, middles(found), among_guesses=True)) == [0]
    # Ties are all on a front.
    tie = replace(good, number=2)
    also = {**found, 2: good.predicted}
    assert numbers(may_join([good, tie], INFOS, middles(also), among_guesses=True)) == [0, 2]


@pytest.mark.parametrize("seed", range(20))
def test_measuring_what_may_join_gives_the_front_of_measuring_all(seed: int) -> None:
    """For intervals that hold, whatever was measured before."""
    draw = random.Random(seed)
    whole: list[TrialRecord] = []
    for number in range(40):
        speed = draw.uniform(100, 1000)
        low, high = speed * draw.uniform(0.6, 1), speed * draw.uniform(1, 1.6)
        whole.append(
            replace(
                measured(number, draw.choice((0.5, 0.7, 0.9)), draw.randint(1, 30), speed),
                predicted={"throughput": [(low + high) / 2, low, high]},
            )
        )
    trials = [one if draw.random() < 0.2 else _unmeasured(one) for one in whole]
    while open_ones := numbers(may_join(trials, INFOS, best_ends(guesses(*trials)))):
        trials[open_ones[0]] = whole[open_ones[0]]
    assert numbers(front_of(trials, INFOS)) == numbers(front_of(whole, INFOS))
    assert any(one.measurement_id is None for one in trials)


def _unmeasured(one: TrialRecord) -> TrialRecord:
    return replace(one, throughput=None, measurement_id=None)


def test_latency_may_be_shorter_than_predicted() -> None:
    infos = objective_infos(SPEC.task, ("quality", "latency"))
    known = ended(0, 0.9, 10, latency_p50=0.5, measurement_id="m")
    one = ended(1, 0.8, 10, predicted={"latency_p50": [0.6, 0.4, 0.8]})
    assert numbers(may_join([known, one], infos, best_ends(guesses(one)))) == [1]
    assert numbers(may_join([known, one], infos, middles(guesses(one)))) == []


def test_comparisons_take_the_measured_value_and_the_sampler_what_it_was_told() -> None:
    one = predicted(0, 0.9, 10, 500.0, 400.0, 600.0)
    assert one.throughput_kind == ThroughputKind.PREDICTED
    assert THROUGHPUT.value(one) is None
    assert (THROUGHPUT.expected(one), THROUGHPUT.for_sampler(one)) == (500.0, 500.0)
    later = replace(one, throughput=450.0, measurement_id="m")
    assert later.throughput_kind == ThroughputKind.MEASURED
    assert THROUGHPUT.value(later) == 450.0
    assert (THROUGHPUT.expected(later), THROUGHPUT.for_sampler(later)) == (450.0, 500.0)
    first = measured(1, 0.9, 10, 450.0)
    assert (THROUGHPUT.expected(first), THROUGHPUT.for_sampler(first)) == (450.0, 450.0)
    assert trial("s", 2).throughput_kind == ThroughputKind.NONE


def test_a_front_keeps_measured_ones_alone() -> None:
    spec = StudySpec.model_validate({"task": {"kind": "digits"}, "retention": {"keep": "front"}})
    trials = [measured(0, 0.9, 100, 1000.0), predicted(1, 0.8, 50, 500.0, 400.0, 600.0)]
    assert kept_by(spec, trials) == {0}
    assert numbers(may_be_on_front(trials, INFOS)) == [1]
