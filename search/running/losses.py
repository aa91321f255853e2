"""Losing attempts: why they are lost, and when another one makes no sense.

A job that fails by itself does so again, so that it is tried a few times only. What befalls it from
outside (a machine that is drained, a process that is killed, a lease that ran out on a slow
network) says nothing about the job, and costs it nothing but time.

See Note [Sudden deaths] in `search/README.md`.
"""

from collections.abc import Sequence
from datetime import UTC, datetime

from sqlalchemy.orm import Session

from search.running.attempts import read_job
from search.running.study_context import StudyContext
from storage.endings import AttemptCause
from storage.records import AttemptRecord, AttemptState
from storage.repositories.attempts import Attempts
from storage.repositories.events import Events

ATTEMPTS = 3
"""How often a job may fail by its own doing before its trial (or its study) fails."""

DEATHS = 3
"""How often what runs a job may die suddenly before the job counts as what killed it."""

LOSSES = 20
"""How often it may be lost to whatever else: a bound, for what never ends is no use to anyone."""

_OWN_DOING = (
    AttemptCause.FAILED,
    AttemptCause.EXITED,
    AttemptCause.CRASHED,
    AttemptCause.OUT_OF_MEMORY,
    AttemptCause.MEMORY_LIMIT,
    AttemptCause.IMPOSSIBLE,
)
_NOBODYS = (
    AttemptCause.RESTARTED,
    AttemptCause.PAUSED,
    AttemptCause.TRIAL_PAUSED,
    AttemptCause.MACHINE_STOPPED,
)
"""These count against no one."""
_FINAL = (AttemptCause.DATA, AttemptCause.MEMORY_LIMIT)
"""Another attempt would come to the same end."""


def gave_up(attempts: Sequence[AttemptRecord]) -> bool:
    """Whether no further attempt makes sense: the data are at fault, or enough were made."""
    counting = [attempt.cause for attempt in attempts if attempt.cause not in _NOBODYS]
    if any(cause in _FINAL for cause in counting):
        return True
    own = sum(cause in _OWN_DOING for cause in counting)
    return own >= ATTEMPTS or _deaths(attempts) >= DEATHS or len(counting) >= LOSSES


def is_suspect(attempts: Sequence[AttemptRecord]) -> bool:
    """Whether the next attempt is to run alone, see Note [Sudden deaths]."""
    return _deaths(attempts) >= DEATHS - 1


def may_be_guilty(attempts: Sequence[AttemptRecord]) -> bool:
    """Whether what runs the job has ever died suddenly."""
    return _deaths(attempts) > 0


def is_infeasible(attempts: Sequence[AttemptRecord]) -> bool:
    """Whether a job that was given up takes more than there is, rather than having failed."""
    return _deaths(attempts) >= DEATHS or _ran_out_of_memory(attempts)


def why_given_up(attempts: Sequence[AttemptRecord]) -> str:
    """The reason of a job's end, for a person."""
    if _deaths(attempts) >= DEATHS:
        return f"it took its machine down {DEATHS} times"
    return attempts[-1].reason or "unknown"


def fault_of_data(attempts: Sequence[AttemptRecord]) -> str | None:
    """What is wrong with the task's data, where the last attempt ended by that."""
    last = attempts[-1]
    return last.detail or "" if last.cause is AttemptCause.DATA else None


def _ran_out_of_memory(attempts: Sequence[AttemptRecord]) -> bool:
    """Whether most of a job's own failures were that it took more memory than there is."""
    own = [attempt.cause for attempt in attempts if attempt.cause in _OWN_DOING]
    if AttemptCause.MEMORY_LIMIT in own:
        return True
    return 2 * own.count(AttemptCause.OUT_OF_MEMORY) > len(own)


def _deaths(attempts: Sequence[AttemptRecord]) -> int:
    return sum(attempt.cause is AttemptCause.DIED for attempt in attempts)


def abandon(study: StudyContext) -> None:
    """Lose what runs with the coordinator that stops, or with the one that died before.

    It counts for the jobs that may have killed it, see Note [Sudden deaths].
    """
    now = datetime.now(UTC)
    with study.database.read() as session:
        attempts = Attempts(session).open(study.id)
    left = {attempt.id for attempt in attempts if not _goes_on(study, attempt)}
    if not left:
        return
    with study.database.write() as session:
        for attempt in Attempts(session).open(study.id):
            if attempt.id in left:
                study.dispatcher.cancel(attempt.id, grace_seconds=0.0)
                # One that died is not known to have held its slot for longer than its lease.
                died = study.dispatcher.died_under(attempt)
                cause = AttemptCause.DIED if died else AttemptCause.RESTARTED
                detail = "died with its coordinator" if died else None
                lose(session, attempt, cause, detail, at=min(now, attempt.lease_until))


def _goes_on(study: StudyContext, attempt: AttemptRecord) -> bool:
    """Whether what works on an attempt goes on; what has not begun is assigned anew."""
    if attempt.state is AttemptState.ASSIGNED:
        return False
    return attempt.id in study.allocator.at_work or study.dispatcher.adopt(
        attempt, tenant=study.tenant, together=study.together(read_job(attempt))
    )


def lose(
    session: Session,
    attempt: AttemptRecord,
    cause: AttemptCause,
    detail: str | None = None,
    *,
    at: datetime | None = None,
) -> None:
    """End an attempt that came to no last word, and tell so.

    One that has not begun is taken away, and leaves nothing.
    """
    if Attempts(session).recall(attempt.id):
        return
    now = datetime.now(UTC)
    ended = Attempts(session).end(
        attempt.id, state=AttemptState.LOST, at=at or now, cause=cause, detail=detail
    )
    payload = {
        "attempt": attempt.number,
        "kind": attempt.kind,
        "trial": attempt.trial,
        "reason": ended.reason,
    }
    Events(session).append(attempt.study_id, "attempt_lost", payload, now)
