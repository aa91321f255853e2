"""The pages of data sets and models: the lists with a form for another, and one of each."""

from typing import TypeAlias

from anyio import to_thread
from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse, RedirectResponse

from service.api.datasets.documents import dataset_document
from service.api.models.sources import source_of
from service.api.paths import dataset_page_path, model_page_path
from service.api.resources import Held, PageCursor, Resources
from service.api.uploads.forms import UploadRefused
from service.api.uploads.taken import take
from service.pages.html import page_response
from storage.errors import QuotaReached
from storage.repositories.uploads import Datasets, UploadedModels

router = APIRouter(include_in_schema=False)

_ON_A_PAGE = 50

Refusal: TypeAlias = UploadRefused | QuotaReached


@router.get("/datasets", response_class=HTMLResponse)
def datasets_page(held: Held, cursor: PageCursor = None) -> HTMLResponse:
    """All data sets, newest first, and the form for another."""
    return _datasets(held, cursor)


@router.post("/datasets", response_model=None)
async def upload_from_page(request: Request, held: Held) -> RedirectResponse | HTMLResponse:
    """Take the form's upload and show it, or show the form again with what was wrong."""
    try:
        taken = await take(request, held, held.intake)
    except (UploadRefused, QuotaReached) as error:
        return await to_thread.run_sync(_datasets, held, None, error)
    return RedirectResponse(dataset_page_path(taken.record.id), status_code=303)


@router.get("/datasets/{dataset_id}", response_class=HTMLResponse)
def dataset_page(dataset_id: str, held: Held) -> HTMLResponse:
    """One data set: shapes, classes, first samples."""
    with held.database.read() as session:
        document = dataset_document(Datasets(session).get(dataset_id))
    return page_response(held.pages.dataset(document))


@router.get("/models", response_class=HTMLResponse)
def models_page(held: Held, cursor: PageCursor = None) -> HTMLResponse:
    """All models, newest first, and the form for another."""
    return _models(held, cursor)


@router.post("/models", response_model=None)
async def upload_model_from_page(request: Request, held: Held) -> RedirectResponse | HTMLResponse:
    """Take the form's upload and show it, or show the form again with what was wrong."""
    try:
        taken = await take(request, held, held.model_intake)
    except (UploadRefused, QuotaReached) as error:
        return await to_thread.run_sync(_models, held, None, error)
    return RedirectResponse(model_page_path(taken.record.id), status_code=303)


@router.get("/models/{model_id}", response_class=HTMLResponse)
def model_page(model_id: str, held: Held) -> HTMLResponse:
    """One model: what it is, where its numbers are, what it could be tried on."""
    with held.database.read() as session:
        model = UploadedModels(session).get(model_id)
    return page_response(held.pages.model(source_of(model).detail()))


def _datasets(held: Resources, cursor: str | None, refused: Refusal | None = None) -> HTMLResponse:
    with held.database.read() as session:
        page = Datasets(session).page(limit=_ON_A_PAGE, cursor=cursor)
    documents = [dataset_document(dataset) for dataset in page.items]
    refusal = None if refused is None else str(refused)
    text = held.pages.datasets(documents, refusal=refusal, next_cursor=page.next_cursor)
    return page_response(text, status=200 if refused is None else 422)


def _models(held: Resources, cursor: str | None, refused: Refusal | None = None) -> HTMLResponse:
    with held.database.read() as session:
        page = UploadedModels(session).page(limit=_ON_A_PAGE, cursor=cursor)
    documents = [source_of(model).document() for model in page.items]
    refusal = None if refused is None else str(refused)
    text = held.pages.models(documents, refusal=refusal, next_cursor=page.next_cursor)
    return page_response(text, status=200 if refused is None else 422)
