"""Losing attempts: those that nobody works on any more, and those that are taken from work."""

from datetime import UTC, datetime

from sqlalchemy.orm import Session

from search.losses import RESTARTED
from search.study_context import StudyContext
from storage.attempts import Attempts
from storage.events import Events
from storage.records import AttemptRecord, AttemptState


def abandon(study: StudyContext) -> None:
    """Lose what runs with the coordinator that stops, or with the one that died before."""
    now = datetime.now(UTC)
    with study.database.write() as session:
        for attempt in Attempts(session).running(study.id):
            if not study.floor.is_at_work(attempt.id):
                # One that died is not known to have held its slot for longer than its lease.
                lose(session, attempt, RESTARTED, at=min(now, attempt.lease_until))


def lose(
    session: Session, attempt: AttemptRecord, reason: str, *, at: datetime | None = None
) -> None:
    """End an attempt that came to no last word, and tell so."""
    now = datetime.now(UTC)
    Attempts(session).end(attempt.id, state=AttemptState.LOST, at=at or now, reason=reason)
    payload = {
        "attempt": attempt.number,
        "kind": attempt.kind,
        "trial": attempt.trial,
        "reason": reason,
    }
    Events(session).append(attempt.study_id, "attempt_lost", payload, now)
