"""When a job is tried again."""

import pytest

from search.losses import (
    ATTEMPTS,
    DATA_AT_FAULT,
    LOSSES,
    PAUSED,
    RESTARTED,
    gave_up,
    ran_out_of_memory,
)
from storage.records import AttemptRecord, AttemptState
from tests.storage.records import attempt

RAISED, CRASHED = "exited with code 1", "crashed by signal 11 (Segmentation fault)"
TOO_LARGE = "out of memory: the kernel killed the worker, for there was no memory left"
KILLED, EXPIRED = "killed by signal 9 (Killed)", "its lease of 30 s ran out"
NOT_STARTED = "not started: the fork server ended"


def lost(*reasons: str) -> list[AttemptRecord]:
    return [attempt("s", state=AttemptState.LOST, reason=reason) for reason in reasons]


@pytest.mark.parametrize("reason", [RAISED, CRASHED, TOO_LARGE])
def test_what_a_job_does_to_itself_is_tried_a_few_times(reason: str) -> None:
    assert not gave_up(lost(*[reason] * (ATTEMPTS - 1), KILLED, EXPIRED, NOT_STARTED))
    assert gave_up(lost(*[reason] * (ATTEMPTS - 1), KILLED, reason))


@pytest.mark.parametrize("reason", [KILLED, EXPIRED, NOT_STARTED])
def test_what_befalls_it_is_borne_much_longer_but_not_for_ever(reason: str) -> None:
    assert not gave_up(lost(*[reason] * (LOSSES - 1)))
    assert gave_up(lost(*[reason] * LOSSES))


@pytest.mark.parametrize("reason", [RESTARTED, PAUSED])
def test_pauses_and_restarts_do_not_count(reason: str) -> None:
    assert not gave_up(lost(*[reason] * 100, RAISED, RAISED))


def test_data_at_fault_are_not_tried_again() -> None:
    assert gave_up(lost(f"{DATA_AT_FAULT}there is no such file"))


def test_a_job_that_was_mostly_too_large_ran_out_of_memory() -> None:
    assert ran_out_of_memory(lost(TOO_LARGE, RAISED, TOO_LARGE, KILLED, KILLED))
    assert not ran_out_of_memory(lost(TOO_LARGE, RAISED, RAISED))
    assert not ran_out_of_memory(lost(KILLED, EXPIRED))
