"""Our own pages, for people: no script inside them, and nothing from elsewhere."""

from anyio import to_thread
from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse, RedirectResponse

from search.spec import StudySpec
from service.dataset_documents import dataset_document, dataset_page_path
from service.documents import front_document, study_document, trial_document
from service.resources import Held, PageCursor, Resources
from service.routes.datasets import take_upload
from service.uploads import UploadRefused
from storage.datasets import Datasets
from storage.studies import Studies
from storage.trials import Trials

router = APIRouter(include_in_schema=False)

_POLICY = (
    "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
# The one page that sends a form. A browser that names no referrer would not name our page as the
# form's origin either, and the form would be refused as a stranger's.
_FORM_HEADERS = {
    "Content-Security-Policy": _POLICY.replace("form-action 'none'", "form-action 'self'"),
    "Referrer-Policy": "same-origin",
}
DATASETS = "/datasets"
"""The page of all data sets, and where its form goes."""

_STUDIES = 50
_DATASETS = 50
_TRIALS = 100


@router.get("/", response_class=HTMLResponse)
def studies_page(held: Held, cursor: PageCursor = None) -> HTMLResponse:
    """All studies, newest first."""
    with held.database.read() as session:
        page = Studies(session).page(limit=_STUDIES, cursor=cursor)
        documents = [study_document(session, study, held.figures) for study in page.items]
    return _html(held.pages.studies(documents, next_cursor=page.next_cursor))


@router.get("/studies/{study_id}", response_class=HTMLResponse)
def study_page(study_id: str, held: Held, cursor: PageCursor = None) -> HTMLResponse:
    """One study: progress, front, trials."""
    with held.database.read() as session:
        study = Studies(session).get(study_id)
        document = study_document(session, study, held.figures)
        front = front_document(study_id, held.figures.front(session, study))
        changes = held.figures.hypervolumes(session, study)
        importance = held.figures.importance(session, study)
        page = Trials(session).page(study_id, limit=_TRIALS, cursor=cursor)
        trials = [trial_document(trial, ()) for trial in page.items]
    metric = StudySpec.model_validate(study.spec).task.metric.name
    return _html(
        held.pages.study(
            document,
            front,
            trials,
            changes=changes,
            importance=importance,
            metric=metric,
            next_cursor=page.next_cursor,
        )
    )


@router.get(DATASETS, response_class=HTMLResponse)
def datasets_page(held: Held, cursor: PageCursor = None) -> HTMLResponse:
    """All data sets, newest first, and the form for another."""
    return _datasets(held, cursor)


@router.post(DATASETS, response_model=None)
async def upload_from_page(request: Request, held: Held) -> RedirectResponse | HTMLResponse:
    """Take the form's upload and show it, or show the form again with what was wrong."""
    try:
        taken = await take_upload(request, held)
    except UploadRefused as error:
        return await to_thread.run_sync(_datasets, held, None, error)
    return RedirectResponse(dataset_page_path(taken.dataset.id), status_code=303)


@router.get("/datasets/{dataset_id}", response_class=HTMLResponse)
def dataset_page(dataset_id: str, held: Held) -> HTMLResponse:
    """One data set: shapes, classes, first samples."""
    with held.database.read() as session:
        document = dataset_document(Datasets(session).get(dataset_id))
    return _html(held.pages.dataset(document))


@router.get("/docs", response_class=HTMLResponse)
def docs_page(request: Request, held: Held) -> HTMLResponse:
    """Every operation of the API, read off its OpenAPI document."""
    return _html(held.pages.docs(request.app.openapi()))


def _datasets(
    held: Resources, cursor: str | None, refused: UploadRefused | None = None
) -> HTMLResponse:
    with held.database.read() as session:
        page = Datasets(session).page(limit=_DATASETS, cursor=cursor)
    text = held.pages.datasets(
        [dataset_document(dataset) for dataset in page.items],
        refusal=None if refused is None else str(refused),
        next_cursor=page.next_cursor,
    )
    return HTMLResponse(text, status_code=200 if refused is None else 422, headers=_FORM_HEADERS)


def _html(text: str) -> HTMLResponse:
    return HTMLResponse(text, headers={"Content-Security-Policy": _POLICY})
