"""Our own pages, for people: no script inside them, and nothing from elsewhere."""

from typing import Literal

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse

from service.api.resources import Held, PageCursor
from service.api.studies.documents import study_documents
from service.pages.html import page_response
from storage.records import StudyState
from storage.repositories.studies import Studies

router = APIRouter(include_in_schema=False)

_STUDIES = 50


@router.get("/", response_class=HTMLResponse)
def studies_page(
    held: Held, cursor: PageCursor = None, state: StudyState | Literal[""] = ""
) -> HTMLResponse:
    """All studies, newest first, or those in one state."""
    chosen = state or None
    with held.database.read() as session:
        page = Studies(session).page(limit=_STUDIES, cursor=cursor, state=chosen)
        documents = study_documents(session, page.items, held.figures)
    return page_response(held.pages.studies(documents, chosen=chosen, next_cursor=page.next_cursor))


@router.get("/docs", response_class=HTMLResponse)
def docs_page(request: Request, held: Held) -> HTMLResponse:
    """Every operation of the API, read off its OpenAPI document."""
    return page_response(held.pages.docs(request.app.openapi()))
