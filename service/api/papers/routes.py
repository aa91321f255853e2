"""The papers' tables, whose rows are studies that are ready to be sent."""

from fastapi import APIRouter

from search.documents.papers import TableDocument, TableList
from search.papers.measured_tables import measured_entries, measured_table
from service.http.problems import documented

router = APIRouter(prefix="/v1/papers", tags=["papers"])


@router.get("", responses=documented(403))
def list_tables() -> TableList:
    """All tables and figures whose rows can be trained."""
    return TableList(items=measured_entries())


@router.get("/{table}", responses=documented(403, 404))
def get_table(table: str) -> TableDocument:
    """One table: what is printed, misprinted and measured, and a study for each row."""
    return measured_table(table)
