"""Studies made of rows."""

from collections.abc import Sequence

from sqlalchemy.orm import Session

from search.fronts.figures import Figures
from search.fronts.study_progress import progress
from service.api.rows import from_row
from service.api.studies.schemas import StudyDocument, StudyLinks
from service.http.kept_answers import Keeping
from storage.records import StudyRecord


def study_document(
    session: Session, study: StudyRecord, figures: Figures, keeping: Keeping | None = None
) -> StudyDocument:
    """A study as of this transaction; one that follows from the time as well is not kept."""
    return study_documents(session, [study], figures, keeping)[0]


def study_documents(
    session: Session,
    studies: Sequence[StudyRecord],
    figures: Figures,
    keeping: Keeping | None = None,
) -> Sequence[StudyDocument]:
    """Several studies, likewise."""
    tallies = figures.tallies(session, studies)
    if keeping is not None and any(tally.device_time.by_the_clock for tally in tallies.values()):
        keeping.stop()
    return [
        from_row(
            StudyDocument,
            study,
            # A study that is asked to end says why before it has.
            state_reason=study.ending if study.state_reason is None else study.state_reason,
            progress=progress(session, study, figures, tallies[study.id]),
            links=StudyLinks.of(study.id),
            stored_bytes=None,
        )
        for study in studies
    ]
