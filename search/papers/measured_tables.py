"""The papers' tables with the results of the trainings that this version was built with."""

from collections import Counter
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Final

from search.documents.papers import FoundNetwork, RowEntry, TableDocument, TableEntry
from search.papers.cells import Cell, cells_of, read_cells
from search.papers.finding import table_named
from search.papers.searched import SEARCHED
from search.papers.tables import TABLES
from search.papers.verdicts import judge

_PACKAGED: Final = Path(__file__).parent / "reproduction"
_CHECKED_OUT: Final = Path(__file__).parents[2] / "deploy" / "reproduction"


def measured_entries() -> tuple[TableEntry, ...]:
    """All tables without their rows, with how many have each verdict."""
    names = TableEntry.model_fields.keys()
    return tuple(
        TableEntry(**{name: getattr(table, name) for name in names})
        for table in map(measured_table, TABLES)
    )


@cache
def measured_table(name: str) -> TableDocument:
    """A table with the verdict on each row; it does not change while the program runs.

    Raises:
        UnknownName: there is none of this name.
    """
    table = table_named(name).document()
    folder = _PACKAGED if _PACKAGED.is_dir() else _CHECKED_OUT
    cells = read_cells(folder / f"{name}.jsonl")
    entries = tuple(_measured(row, cells_of(row, name, cells)) for row in table.entries)
    verdicts = Counter(
        row.verdict.kind for row in entries if row.verdict is not None and row.system != SEARCHED
    )
    return table.model_copy(update={"entries": entries, "verdicts": dict(verdicts)})


def _measured(row: RowEntry, cells: Sequence[Cell]) -> RowEntry:
    found = [
        FoundNetwork(network=cell.network, parameters=cell.parameters)
        for cell in cells
        if row.system == SEARCHED and cell.value is not None
    ]
    verdict = judge(row, [cell.measured for cell in cells])
    return row.model_copy(update={"verdict": verdict, "found": tuple(found)})
