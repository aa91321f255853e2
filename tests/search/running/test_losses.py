"""When a job is tried again."""

from typing import TypeAlias

import pytest

from search.running.losses import (
    ATTEMPTS,
    LOSSES,
    gave_up,
    is_infeasible,
    is_suspect,
    why_given_up,
)
from storage.endings import AttemptCause
from storage.records import AttemptRecord, AttemptState
from tests.storage.records import attempt

Why: TypeAlias = tuple[AttemptCause, str | None]

RAISED: Why = (AttemptCause.EXITED, "exited with code 1")
SAID_SO: Why = (AttemptCause.FAILED, "Traceback: ValueError: no such mode")
CRASHED: Why = (AttemptCause.CRASHED, "crashed by signal 11 (Segmentation fault)")
TOO_LARGE: Why = (AttemptCause.OUT_OF_MEMORY, "out of memory: there was no memory left")
AT_ITS_LIMIT: Why = (AttemptCause.MEMORY_LIMIT, "out of memory: ended at its limit of 1.9 GB")
KILLED: Why = (AttemptCause.LOST, "killed by signal 9 (Killed)")
EXPIRED: Why = (AttemptCause.LOST, "its lease of 30 s ran out")
LIED: Why = (AttemptCause.IMPOSSIBLE, "epoch: 999 is outside of the job; allowed are 1..2")
NOT_STARTED: Why = (AttemptCause.LOST, "not started: the fork server ended")
RESTARTED: Why = (AttemptCause.RESTARTED, None)
PAUSED: Why = (AttemptCause.PAUSED, None)


def lost(*whys: Why) -> list[AttemptRecord]:
    return [
        attempt("s", state=AttemptState.LOST, cause=cause, detail=detail) for cause, detail in whys
    ]


@pytest.mark.parametrize("reason", [RAISED, SAID_SO, CRASHED, TOO_LARGE, LIED])
def test_what_a_job_does_to_itself_is_tried_a_few_times(reason: Why) -> None:
    assert not gave_up(lost(*[reason] * (ATTEMPTS - 1), KILLED, EXPIRED, NOT_STARTED))
    assert gave_up(lost(*[reason] * (ATTEMPTS - 1), KILLED, reason))


@pytest.mark.parametrize("reason", [KILLED, EXPIRED, NOT_STARTED])
def test_what_befalls_it_is_borne_much_longer_but_not_for_ever(reason: Why) -> None:
    assert not gave_up(lost(*[reason] * (LOSSES - 1)))
    assert gave_up(lost(*[reason] * LOSSES))


@pytest.mark.parametrize("reason", [RESTARTED, PAUSED])
def test_pauses_and_restarts_do_not_count(reason: Why) -> None:
    assert not gave_up(lost(*[reason] * 100, RAISED, RAISED))


def test_data_at_fault_are_not_tried_again() -> None:
    assert gave_up(lost((AttemptCause.DATA, "there is no such file")))


def test_a_job_that_was_mostly_too_large_ran_out_of_memory() -> None:
    assert is_infeasible(lost(TOO_LARGE, RAISED, TOO_LARGE, KILLED, KILLED))
    assert not is_infeasible(lost(TOO_LARGE, RAISED, RAISED))
    assert not is_infeasible(lost(KILLED, EXPIRED))


def test_what_comes_to_the_limit_of_its_slot_is_not_tried_again() -> None:
    attempts = lost(KILLED, AT_ITS_LIMIT)
    assert gave_up(attempts)
    assert is_infeasible(attempts)
    assert why_given_up(attempts) == "out of memory: ended at its limit of 1.9 GB"


def test_what_takes_its_machine_down_is_tried_three_times_the_last_time_alone() -> None:
    """Whatever else befell it in between."""
    one = (AttemptCause.DIED, "died with its coordinator")
    other = (AttemptCause.DIED, "died with its fork server")
    attempts = lost(one, RESTARTED, KILLED)
    assert not is_suspect(attempts)
    attempts = lost(one, PAUSED, other, EXPIRED)
    assert is_suspect(attempts)
    assert not gave_up(attempts)
    attempts = lost(one, PAUSED, other, one)
    assert gave_up(attempts)
    assert is_infeasible(attempts)
    assert why_given_up(attempts) == "it took its machine down 3 times"
