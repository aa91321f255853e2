from dataclasses import replace
from typing import Any

import pytest

from search.agents.executors import Slot
from search.dispatch.claim_policy import Capacity, Choosing, can_run
from search.studies.spec import StudySpec
from storage.endings import StudyCause
from storage.records import StudyRecord, StudyState
from tests.service.site import SMALL_SPEC, now

CORE = Slot("cpu-0", "cpu", "a CPU", 1.0)
HALF = Slot("ada/gpu-0-0", "cuda:GPU-1", "a GPU", 0.5, machine="ada")
NOTHING = Capacity((), ())


def space(*slots: Slot) -> Capacity:
    return Capacity(slots, tuple(replace(slot, share=0.0) for slot in slots))


def study(state: StudyState = StudyState.QUEUED, **given: Any) -> StudyRecord:
    spec = StudySpec.model_validate({**SMALL_SPEC, **given}).model_dump(mode="json")
    return StudyRecord(
        id="s",
        name="a study",
        state=state,
        spec=spec,
        created_at=now(),
    )


@pytest.mark.parametrize(
    ("given", "on_core", "on_half"),
    [
        ({}, True, True),
        ({"resources": {"device": "cuda"}}, False, True),
        ({"resources": {"device": "cpu"}}, True, False),
        ({"resources": {"fraction": 0.75}}, True, False),
        ({"throughput": {"device": "a GPU"}}, False, True),
        ({"throughput": {"device": "another GPU"}}, False, False),
    ],
)
def test_a_study_runs_where_a_slot_and_a_measuring_slot_serve_it(
    given: dict[str, Any], on_core: bool, on_half: bool
) -> None:
    assert can_run(study(**given), space(CORE)) == on_core
    assert can_run(study(**given), space(HALF)) == on_half
    assert not can_run(study(**given), NOTHING)


def test_c_files_are_measured_where_a_compiler_is() -> None:
    wanted = study(throughput={"runtime": "c"})
    bare = replace(CORE, compiles=False)
    assert can_run(wanted, space(CORE))
    assert not can_run(wanted, space(bare))
    assert not can_run(wanted, space(HALF))
    assert can_run(study(), space(bare))


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_study_that_nobody_serves_waits_and_is_then_taken() -> None:
    clock = Clock()
    choosing = Choosing(10.0, clock=clock)

    def leaves(*theirs: Capacity, ours: Capacity = NOTHING) -> bool:
        return choosing.leaves(study(), ours, theirs, is_at_work=False)

    assert leaves()
    clock.now = 9.0
    assert leaves()
    assert not leaves(ours=space(CORE))
    # A slot was there meanwhile: the wait begins anew.
    assert leaves()
    clock.now = 18.0
    assert leaves()
    clock.now = 20.0
    assert not leaves()


def test_a_study_is_left_to_a_coordinator_that_serves_it_for_as_long_as_that_lives() -> None:
    clock = Clock()
    choosing = Choosing(0.0, clock=clock)
    wanted = study(StudyState.RUNNING, resources={"device": "cuda"})
    for is_at_work in (True, False):
        assert choosing.leaves(wanted, space(CORE), [space(HALF)], is_at_work=is_at_work)
        clock.now += 100.0
    assert not choosing.leaves(wanted, space(CORE), [NOTHING], is_at_work=False)


def test_what_runs_here_stays_here_while_nobody_else_serves_it() -> None:
    choosing = Choosing(10.0)
    assert not choosing.leaves(study(StudyState.RUNNING), NOTHING, [], is_at_work=True)


def test_a_study_that_is_to_end_needs_no_slot() -> None:
    ending = replace(study(StudyState.RUNNING), ending_cause=StudyCause.CANCELLED)
    for one in (ending, study(StudyState.PAUSED), study(StudyState.FINISHED)):
        assert not Choosing(10.0).leaves(one, NOTHING, [space(CORE)], is_at_work=False)


def test_nobodys_time_runs_before_the_first_machine_may_have_joined() -> None:
    time = 0.0
    choosing = Choosing(5.0, join_seconds=120.0, clock=lambda: time)
    gpu = replace(study(resources={"device": "cuda"}), id="gpu")
    time = 100.0
    assert choosing.leaves(study(), NOTHING, (), is_at_work=False)
    assert choosing.leaves(gpu, space(CORE), (), is_at_work=False), "its own time begins"
    time = 106.0
    assert not choosing.leaves(gpu, space(CORE), (), is_at_work=False)
    assert choosing.leaves(study(), NOTHING, (), is_at_work=False)
    time = 121.0
    assert choosing.leaves(study(), NOTHING, (), is_at_work=False), "and now that of the other"
    time = 127.0
    assert not choosing.leaves(study(), NOTHING, (), is_at_work=False)


def test_a_running_study_is_said_to_wait_after_some_seconds_and_until_it_is_served() -> None:
    clock = Clock()
    choosing = Choosing(0.0, clock=clock)
    silent = study(StudyState.RUNNING)
    said = replace(silent, state_cause=StudyCause.NO_SLOT)

    def says(one: StudyRecord, ours: Capacity) -> bool:
        assert not choosing.leaves(one, ours, [], is_at_work=True)
        return choosing.says_it_waits(one, is_at_work=True)

    assert not says(silent, NOTHING)
    assert says(said, NOTHING), "it was said before the coordinator was started again"
    clock.now = 5.0
    assert says(silent, NOTHING)
    assert not says(said, space(CORE))
