"""Our own pages, for people: no script inside them, and nothing from elsewhere."""

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse

from search import pareto
from search.spec import StudySpec
from service.documents import front_document, study_document, trial_document
from service.resources import Held, PageCursor
from storage.studies import Studies
from storage.trials import Trials

router = APIRouter(include_in_schema=False)

_POLICY = (
    "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_STUDIES = 50
_TRIALS = 100


@router.get("/", response_class=HTMLResponse)
def studies_page(held: Held, cursor: PageCursor = None) -> HTMLResponse:
    """All studies, newest first."""
    with held.database.read() as session:
        page = Studies(session).page(limit=_STUDIES, cursor=cursor)
        documents = [study_document(session, study) for study in page.items]
    return _html(held.pages.studies(documents, next_cursor=page.next_cursor))


@router.get("/studies/{study_id}", response_class=HTMLResponse)
def study_page(study_id: str, held: Held, cursor: PageCursor = None) -> HTMLResponse:
    """One study: progress, front, trials."""
    with held.database.read() as session:
        study = Studies(session).get(study_id)
        document = study_document(session, study)
        front = front_document(study_id, pareto.front(session, study))
        page = Trials(session).page(study_id, limit=_TRIALS, cursor=cursor)
        trials = [trial_document(trial, ()) for trial in page.items]
    metric = StudySpec.model_validate(study.spec).task.metric.name
    return _html(
        held.pages.study(document, front, trials, metric=metric, next_cursor=page.next_cursor)
    )


@router.get("/docs", response_class=HTMLResponse)
def docs_page(request: Request, held: Held) -> HTMLResponse:
    """Every operation of the API, read off its OpenAPI document."""
    return _html(held.pages.docs(request.app.openapi()))


def _html(text: str) -> HTMLResponse:
    return HTMLResponse(text, headers={"Content-Security-Policy": _POLICY})
