"""Our own pages, for people: no script inside them, and nothing from elsewhere."""

from typing import Annotated, Literal

from fastapi import APIRouter, Query
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
    held: Held,
    cursor: PageCursor = None,
    state: StudyState | Literal[""] = "",
    text: Annotated[str, Query(max_length=200)] = "",
    tag: Annotated[str, Query(max_length=50)] = "",
) -> HTMLResponse:
    """All studies, newest first, or those that are asked for."""
    with held.database.read() as session:
        page = Studies(session).page(
            limit=_STUDIES,
            cursor=cursor,
            state=state or None,
            text=text.strip() or None,
            tag=tag or None,
        )
        documents = study_documents(session, page.items, held.figures)
    asked = {"text": text.strip(), "state": str(state), "tag": tag}
    return page_response(held.pages.studies(documents, asked=asked, next_cursor=page.next_cursor))


@router.get("/docs", response_class=HTMLResponse)
def docs_page(held: Held) -> HTMLResponse:
    """Every operation of the API."""
    return page_response(held.pages.docs())
