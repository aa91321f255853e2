"""The pages of uploaded models: the list with the form for another, and one model."""

from anyio import to_thread
from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse, RedirectResponse

from service.api.models.documents import model_detail, model_document
from service.api.models.routes import take_model
from service.api.paths import model_page_path
from service.api.resources import Held, PageCursor, Resources
from service.api.uploads.forms import UploadRefused
from service.pages.html import page_response
from storage.errors import QuotaReached
from storage.repositories.uploads import UploadedModels

PREFIX = "/models"
"""The page of all models, and where its form goes."""

router = APIRouter(prefix=PREFIX, include_in_schema=False)

_MODELS = 50


@router.get("", response_class=HTMLResponse)
def models_page(held: Held, cursor: PageCursor = None) -> HTMLResponse:
    """All models, newest first, and the form for another."""
    return _models(held, cursor)


@router.post("", response_model=None)
async def upload_model_from_page(request: Request, held: Held) -> RedirectResponse | HTMLResponse:
    """Take the form's upload and show it, or show the form again with what was wrong."""
    try:
        taken = await take_model(request, held)
    except (UploadRefused, QuotaReached) as error:
        return await to_thread.run_sync(_models, held, None, error)
    return RedirectResponse(model_page_path(taken.record.id), status_code=303)


@router.get("/{model_id}", response_class=HTMLResponse)
def model_page(model_id: str, held: Held) -> HTMLResponse:
    """One model: what it is, where its numbers are, what it could be tried on."""
    with held.database.read() as session:
        model = UploadedModels(session).get(model_id)
    return page_response(held.pages.model(model_detail(model)))


def _models(
    held: Resources, cursor: str | None, refused: UploadRefused | QuotaReached | None = None
) -> HTMLResponse:
    with held.database.read() as session:
        page = UploadedModels(session).page(limit=_MODELS, cursor=cursor)
    text = held.pages.models(
        [model_document(model) for model in page.items],
        refusal=None if refused is None else str(refused),
        next_cursor=page.next_cursor,
    )
    return page_response(text, status=200 if refused is None else 422)
