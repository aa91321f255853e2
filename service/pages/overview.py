"""Our own pages, for people: no script inside them, and nothing from elsewhere."""

from typing import Literal

from anyio import to_thread
from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse, RedirectResponse

from service.api.datasets.documents import dataset_document
from service.api.datasets.routes import take_upload
from service.api.paths import dataset_page_path
from service.api.resources import Held, PageCursor, Resources
from service.api.studies.documents import study_document
from service.api.uploads.forms import UploadRefused
from service.pages.html import page_response
from storage.errors import QuotaReached
from storage.records import StudyState
from storage.repositories.studies import Studies
from storage.repositories.uploads import Datasets

router = APIRouter(include_in_schema=False)

DATASETS = "/datasets"
"""The page of all data sets, and where its form goes."""

_STUDIES = 50
_DATASETS = 50


@router.get("/", response_class=HTMLResponse)
def studies_page(
    held: Held, cursor: PageCursor = None, state: StudyState | Literal[""] = ""
) -> HTMLResponse:
    """All studies, newest first, or those in one state."""
    chosen = state or None
    with held.database.read() as session:
        page = Studies(session).page(limit=_STUDIES, cursor=cursor, state=chosen)
        documents = [study_document(session, study, held.figures) for study in page.items]
    return page_response(held.pages.studies(documents, chosen=chosen, next_cursor=page.next_cursor))


@router.get(DATASETS, response_class=HTMLResponse)
def datasets_page(held: Held, cursor: PageCursor = None) -> HTMLResponse:
    """All data sets, newest first, and the form for another."""
    return _datasets(held, cursor)


@router.post(DATASETS, response_model=None)
async def upload_from_page(request: Request, held: Held) -> RedirectResponse | HTMLResponse:
    """Take the form's upload and show it, or show the form again with what was wrong."""
    try:
        taken = await take_upload(request, held)
    except (UploadRefused, QuotaReached) as error:
        return await to_thread.run_sync(_datasets, held, None, error)
    return RedirectResponse(dataset_page_path(taken.record.id), status_code=303)


@router.get("/datasets/{dataset_id}", response_class=HTMLResponse)
def dataset_page(dataset_id: str, held: Held) -> HTMLResponse:
    """One data set: shapes, classes, first samples."""
    with held.database.read() as session:
        document = dataset_document(Datasets(session).get(dataset_id))
    return page_response(held.pages.dataset(document))


@router.get("/docs", response_class=HTMLResponse)
def docs_page(request: Request, held: Held) -> HTMLResponse:
    """Every operation of the API, read off its OpenAPI document."""
    return page_response(held.pages.docs(request.app.openapi()))


def _datasets(
    held: Resources, cursor: str | None, refused: UploadRefused | QuotaReached | None = None
) -> HTMLResponse:
    with held.database.read() as session:
        page = Datasets(session).page(limit=_DATASETS, cursor=cursor)
    text = held.pages.datasets(
        [dataset_document(dataset) for dataset in page.items],
        refusal=None if refused is None else str(refused),
        next_cursor=page.next_cursor,
    )
    return page_response(text, status=200 if refused is None else 422)
