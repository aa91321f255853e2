"""The papers' tables for people."""

from collections.abc import Sequence

from rich.markup import escape
from rich.table import Table

from search.documents.papers import RowEntry, TableDocument, TableEntry
from search.documents.readable import NONE, mean
from service.commands.shown.tables import add_columns, empty_table


def tables_table(tables: Sequence[TableEntry]) -> Table:
    """All tables."""
    table = empty_table("Tables of the papers")
    add_columns(table, "name", "rows", "what", "measured")
    for one in tables:
        verdicts = sorted(one.verdicts.items(), key=lambda item: -item[1])
        measured = ", ".join(f"{rows} {kind}" for kind, rows in verdicts)
        table.add_row(one.name, str(one.rows), escape(one.title), measured)
    return table


def table_rows(document: TableDocument) -> Table:
    """The rows of one table."""
    table = empty_table(document.title)
    table.caption = escape(document.about)
    add_columns(table, "row", "printed", "measured", "verdict", "parameters", "remark")
    for row in document.entries:
        claim = NONE if row.claim is None else f"{row.claim.kind} {row.claim.value:.4g}"
        remark = row.unreachable or row.erratum or ""
        table.add_row(
            escape(row.key), claim, *_measured(row), f"{row.parameters:,}", escape(remark)
        )
    return table


def _measured(row: RowEntry) -> tuple[str, str]:
    """The mean, and the verdict; a search has a mean alone."""
    verdict = row.verdict
    if verdict is None:
        return NONE, NONE
    return mean(verdict.mean, verdict.half_width), NONE if row.found else verdict.kind
