"""Studies made of rows."""

from sqlalchemy.orm import Session

from search.fronts.figures import Figures
from search.fronts.study_progress import progress
from service.api.rows import from_row
from service.api.studies.schemas import StudyDocument, StudyLinks
from storage.records import StudyRecord


def study_document(session: Session, study: StudyRecord, figures: Figures) -> StudyDocument:
    """A study as of this transaction."""
    return from_row(
        StudyDocument,
        study,
        # A study that is asked to end says why before it has.
        state_reason=study.ending if study.state_reason is None else study.state_reason,
        progress=progress(session, study, figures),
        links=StudyLinks.of(study.id),
    )
