"""The papers' tables for people."""

from collections.abc import Sequence

from rich.markup import escape
from rich.table import Table

from search.documents.papers import TableDocument, TableEntry
from service.commands.shown.tables import add_columns, empty_table


def tables_table(tables: Sequence[TableEntry]) -> Table:
    """All tables."""
    table = empty_table("Tables of the papers")
    add_columns(table, "name", "rows", "what")
    for one in tables:
        table.add_row(one.name, str(one.rows), escape(one.title))
    return table


def table_rows(document: TableDocument) -> Table:
    """The rows of one table."""
    table = empty_table(document.title)
    table.caption = escape(document.about)
    table.caption_justify = "left"
    add_columns(table, "row", "printed", "parameters", "updates", "remark")
    for row in document.entries:
        claim = "–" if row.claim is None else f"{row.claim.kind} {row.claim.value:.4g}"
        remark = row.unreachable or row.erratum or ""
        table.add_row(
            escape(row.key), claim, f"{row.parameters:,}", f"{row.updates:,}", escape(remark)
        )
    return table
