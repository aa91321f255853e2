"""What the papers print: their tables as data, the presets that follow, and verdicts."""

from collections.abc import Mapping

from search.papers.finding import row_named, rows_named, table_named, unknown
from search.papers.paper_table import Table
from search.papers.ranks import Pair, PairTest, Ranks, ranks_of
from search.papers.row import Preset, Row, System
from search.papers.searched import BUDGET_IN_WORDS, SEARCHED
from search.papers.tables import TABLES

_ROWS = [(table, row) for table in TABLES.values() for row in table.rows]

PRESETS: Mapping[str, Preset] = {
    row.system.name: row.as_preset(
        f"{table.name}: {other.key}"
        for table, other in _ROWS
        if other.system.name == row.system.name
    )
    for _, row in _ROWS
    if row.preset
}
"""Every named system by its name, with the training of the row that it is at home in."""

__all__ = [
    "BUDGET_IN_WORDS",
    "PRESETS",
    "SEARCHED",
    "TABLES",
    "Pair",
    "PairTest",
    "Preset",
    "Ranks",
    "Row",
    "System",
    "Table",
    "ranks_of",
    "row_named",
    "rows_named",
    "table_named",
    "unknown",
]
