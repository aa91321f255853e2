"""The papers' tables, whose rows are studies that are ready to be sent."""

from functools import cache

from fastapi import APIRouter

from search.documents.papers import TableDocument, TableList
from search.papers import TABLES, table_named
from service.http.problems import documented

router = APIRouter(prefix="/v1/papers", tags=["papers"])


@router.get("", responses=documented(403))
def list_tables() -> TableList:
    """All tables and figures whose rows can be trained."""
    return TableList(items=tuple(table.entry() for table in TABLES.values()))


@router.get("/{table}", responses=documented(403, 404))
def get_table(table: str) -> TableDocument:
    """One table: what is printed, what is misprinted, and a study for each row."""
    return _document(table_named(table).name)


@cache
def _document(name: str) -> TableDocument:
    """It does not change while the program runs."""
    return TABLES[name].document()
