"""The states of a study: which there are in progress, and how one is entered or left."""

from collections.abc import Mapping, Sequence
from datetime import datetime

from sqlalchemy.orm import Session

from storage.accounts.audit import Audit
from storage.endings import StudyCause
from storage.engine import Database
from storage.records import StudyRecord, StudyState, TrialCounts
from storage.repositories.events import Events
from storage.repositories.studies import Studies

ENDED = (StudyState.FINISHED, StudyState.CANCELLED, StudyState.FAILED)
"""The states that a study does not leave."""


def cancel(database: Database, study_id: str, *, by: str) -> StudyRecord:
    """End a study without waiting for its trials.

    Asking twice is harmless, and a study that ended stays as it is.

    Raises:
        NotFound: there is no such study.
    """
    with database.write() as session:
        studies = Studies(session)
        study = studies.get(study_id)
        if study.state not in ENDED and studies.set_ending(study_id, StudyCause.CANCELLED, by):
            Audit(session).note("study.cancelled", study_id)
        return studies.get(study_id)


def announce(session: Session, study: StudyRecord, *, at: datetime) -> None:
    """Write the event that tells where a study stands."""
    Events(session).append(
        study.id, "study", {"state": study.state, "reason": study.state_reason}, at
    )


def enter(
    session: Session,
    study_id: str,
    state: StudyState,
    *,
    at: datetime,
    cause: StudyCause | None = None,
    detail: str | None = None,
) -> StudyRecord:
    """Bring a study into a state, and tell so."""
    studies = Studies(session)
    studies.set_state(study_id, state, at=at, cause=cause, detail=detail)
    study = studies.get(study_id)
    announce(session, study, at=at)
    return study


def ended_after_dispatch(counts: TrialCounts) -> int:
    """How much of the budget of trials is used up: those that ended, refused draws excepted."""
    return counts.dispatched - counts.under_way


def priority_of(study: StudyRecord) -> int:
    """Its place among others, the highest first; documents of an earlier version have none."""
    priority = study.spec.get("priority", 0)
    return priority if isinstance(priority, int) else 0


def in_progress(
    session: Session, seen: Mapping[str, StudyRecord] | None = None
) -> Sequence[StudyRecord]:
    """The studies that a coordinator has to work on, oldest first.

    Those that it has `seen` a moment ago are given as they were then, without reading them again.
    """
    # A paused one too: what trains in it has to be put aside, and it goes on at once when asked to.
    studies, seen = Studies(session), seen or {}
    ids = studies.ids_in_states(StudyState.QUEUED, StudyState.RUNNING, StudyState.PAUSED)
    unseen = [study_id for study_id in ids if study_id not in seen]
    found = {study.id: study for study in studies.with_ids(unseen)} if unseen else {}
    known = {**seen, **found}
    return [known[study_id] for study_id in ids if study_id in known]
