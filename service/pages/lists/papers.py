"""The papers' tables for people: each row leads to the form of a study of it."""

from fastapi import APIRouter
from fastapi.responses import HTMLResponse

from search.papers.measured_tables import measured_entries, measured_table
from service.api.resources import Held
from service.pages.html import page_response

router = APIRouter(prefix="/papers", include_in_schema=False)


@router.get("", response_class=HTMLResponse)
def papers_page(held: Held) -> HTMLResponse:
    """All tables."""
    return page_response(held.pages.papers(measured_entries()))


@router.get("/{table}", response_class=HTMLResponse)
def table_page(table: str, held: Held) -> HTMLResponse:
    """One table with its rows."""
    return page_response(held.pages.paper_table(measured_table(table)))
