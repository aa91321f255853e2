"""The pages of collections: all of them, and one with its results and ranks."""

from fastapi import APIRouter
from fastapi.responses import HTMLResponse, RedirectResponse

from service.api.collections.documents import (
    collection_document,
    collection_entries,
    ranks_document,
    results_document,
)
from service.api.collections.routes import (
    cancel_collection,
    pause_collection,
    resume_collection,
)
from service.api.paths import collection_page_path
from service.api.resources import Held, PageCursor
from service.pages.html import page_response
from storage.repositories.collections import Collections

router = APIRouter(prefix="/collections", include_in_schema=False)

_COLLECTIONS = 50


@router.get("", response_class=HTMLResponse)
def collections_page(held: Held, cursor: PageCursor = None) -> HTMLResponse:
    """All collections, newest first."""
    with held.database.read() as session:
        page = Collections(session).page(limit=_COLLECTIONS, cursor=cursor)
        entries = collection_entries(session, page.items)
    return page_response(held.pages.collections(entries, next_cursor=page.next_cursor))


@router.get("/{collection_id}", response_class=HTMLResponse)
def collection_page(collection_id: str, held: Held) -> HTMLResponse:
    """One collection: its studies, the best of each, and ranks."""
    with held.database.read() as session:
        collection = Collections(session).get(collection_id)
        document = collection_document(session, collection, held.figures)
        results = results_document(session, collection, held.figures)
        ranks = ranks_document(session, collection, held.figures)
    return page_response(held.pages.collection(document, results, ranks))


@router.post("/{collection_id}/pause", response_class=RedirectResponse)
def pause_collection_from_page(collection_id: str, held: Held) -> RedirectResponse:
    """Pause a collection, and show it."""
    pause_collection(collection_id, held)
    return _to_collection(collection_id)


@router.post("/{collection_id}/resume", response_class=RedirectResponse)
def resume_collection_from_page(collection_id: str, held: Held) -> RedirectResponse:
    """Let a collection go on, and show it."""
    resume_collection(collection_id, held)
    return _to_collection(collection_id)


@router.post("/{collection_id}/cancel", response_class=RedirectResponse)
def cancel_collection_from_page(collection_id: str, held: Held) -> RedirectResponse:
    """End a collection, and show it."""
    cancel_collection(collection_id, held)
    return _to_collection(collection_id)


def _to_collection(collection_id: str) -> RedirectResponse:
    return RedirectResponse(collection_page_path(collection_id), status_code=303)
