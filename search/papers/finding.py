"""Tables and rows by their names, or the names that are near."""

from collections.abc import Iterable, Sequence
from difflib import get_close_matches

from search.documents.papers import RowEntry
from search.errors import UnknownName
from search.papers.paper_table import Table
from search.papers.searched import SEARCHED
from search.papers.tables import TABLES

_ALIKE = 0.5
"""How alike a name has to be to be offered."""
_MOST_NAMED = 40
_MOST_NEAR = 3


def table_named(name: str) -> Table:
    """A table.

    Raises:
        UnknownName: there is none of this name.
    """
    if name not in TABLES:
        raise UnknownName(unknown("table", name, TABLES))
    return TABLES[name]


def row_named(entries: Sequence[RowEntry], key: str) -> RowEntry:
    """The row of a key.

    Raises:
        UnknownName: the table has none.
    """
    known = {entry.key: entry for entry in entries}
    if key not in known:
        raise UnknownName(unknown("row", key, known))
    return known[key]


def rows_named(
    entries: Sequence[RowEntry],
    *,
    rows: Iterable[str] = (),
    systems: Iterable[str] = (),
    searched: bool = False,
) -> Sequence[RowEntry]:
    """Rows of a table by key or group, of some systems; by default all that a paper prints.

    Args:
        entries: all rows of the table.
        rows: keys or groups.
        systems: names of systems.
        searched: whether the searched rows belong to it, each of which takes a whole study. Those
            that are named by key or system do.

    Raises:
        UnknownName: a name is none of the table's.
    """
    keys, names = set[str](), set[str]()
    groups = {entry.key.partition("/")[0] for entry in entries}
    whole = {entry.key for entry in entries}
    for name in rows:
        if name not in groups | whole:
            raise UnknownName(unknown("row", name, sorted(groups | whole)))
        keys.add(name)
    known = {entry.system for entry in entries}
    for name in systems:
        if name not in known:
            raise UnknownName(unknown("system", name, sorted(known)))
        names.add(name)
    return [
        entry
        for entry in entries
        if (not keys or {entry.key, entry.key.partition("/")[0]} & keys)
        and (not names or entry.system in names)
        and (searched or entry.system != SEARCHED or entry.key in keys or entry.system in names)
    ]


def unknown(what: str, name: str, allowed: Iterable[str]) -> str:
    """The sentence on a name that is none of those allowed."""
    allowed = list(allowed)
    parts = [one for one in allowed if name.lower() in one.lower()][:_MOST_NEAR]
    near = parts or get_close_matches(name, allowed, n=_MOST_NEAR, cutoff=_ALIKE)
    hint = f"did you mean {' or '.join(near)}? " if near else ""
    few = allowed if len(allowed) <= _MOST_NAMED else [*allowed[:_MOST_NAMED], "..."]
    return f"unknown {what} {name!r}; {hint}allowed are {', '.join(few)}"
