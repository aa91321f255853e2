"""Why attempts are lost, and when another one makes no sense.

A job that fails by itself does so again, so that it is tried a few times only. What befalls it from
outside (a machine that is drained, a process that is killed, a lease that ran out on a slow
network) says nothing about the job, and costs it nothing but time.
"""

from collections.abc import Sequence

from search.executors.base import CRASHED, EXITED, OUT_OF_MEMORY
from storage.records import AttemptRecord

ATTEMPTS = 3
"""How often a job may fail by its own doing before its trial (or its study) fails."""

LOSSES = 20
"""How often it may be lost to whatever else: a bound, for what never ends is no use to anyone."""

RESTARTED = "the server was stopped"
"""The reason of attempts that were lost with their coordinator; they count against no one."""

PAUSED = "the study was paused"
"""The reason of attempts that were put aside for a pause; they count against no one either."""

DATA_AT_FAULT = "data: "
"""How the reason of an attempt begins that found the task's data missing or damaged."""

_OWN_DOING = (EXITED, CRASHED, OUT_OF_MEMORY)


def gave_up(attempts: Sequence[AttemptRecord]) -> bool:
    """Whether no further attempt makes sense: the data are at fault, or enough were made."""
    reasons = [attempt.reason or "" for attempt in attempts]
    counting = [reason for reason in reasons if reason not in (RESTARTED, PAUSED)]
    if any(reason.startswith(DATA_AT_FAULT) for reason in counting):
        return True
    own = sum(reason.startswith(_OWN_DOING) for reason in counting)
    return own >= ATTEMPTS or len(counting) >= LOSSES


def ran_out_of_memory(attempts: Sequence[AttemptRecord]) -> bool:
    """Whether most of a job's own failures were that it took more memory than there is."""
    own = [attempt.reason or "" for attempt in attempts]
    own = [reason for reason in own if reason.startswith(_OWN_DOING)]
    return 2 * sum(reason.startswith(OUT_OF_MEMORY) for reason in own) > len(own)
