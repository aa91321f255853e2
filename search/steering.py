"""Steering a study that was submitted: hold it and let it go on."""

from datetime import UTC, datetime

from sqlalchemy.orm import Session

from search.studies import enter
from storage.engine import Database
from storage.records import StudyRecord, StudyState
from storage.studies import Studies

PAUSED_BY = "paused by "
"""How the reason of a paused study begins; who asked for it follows."""


def pause(database: Database, study_id: str, *, by: str) -> StudyRecord:
    """Hold a study: nothing is begun until it is resumed, and what trains is put aside.

    Asking twice is harmless, and a study that ended, or that is about to, stays as it is.

    Raises:
        NotFound: there is no such study.
    """
    with database.write() as session:
        return hold(session, study_id, reason=f"{PAUSED_BY}{by}")


def hold(session: Session, study_id: str, *, reason: str) -> StudyRecord:
    """Pause a study for any reason, which the study then shows; see `pause`.

    Raises:
        NotFound: there is no such study.
    """
    study = Studies(session).get(study_id)
    if study.state not in (StudyState.QUEUED, StudyState.RUNNING) or study.ending is not None:
        return study
    return enter(session, study_id, StudyState.PAUSED, at=datetime.now(UTC), reason=reason)


def resume(database: Database, study_id: str) -> StudyRecord:
    """Let a paused study go on where it was held; any other stays as it is.

    Raises:
        NotFound: there is no such study.
    """
    with database.write() as session:
        study = Studies(session).get(study_id)
        if study.state != StudyState.PAUSED:
            return study
        before = StudyState.QUEUED if study.started_at is None else StudyState.RUNNING
        return enter(session, study_id, before, at=datetime.now(UTC))
