"""Tables for notebooks. Whatever a name holds, it stays text."""

from collections.abc import Iterable, Sequence
from html import escape


def table(headings: Sequence[str], rows: Iterable[Sequence[object]], *, caption: str = "") -> str:
    """An HTML table of texts, all of them escaped; null is an empty cell."""
    head = "".join(f"<th>{escape(heading)}</th>" for heading in headings)
    body = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in rows)
    title = f"<caption>{escape(caption)}</caption>" if caption else ""
    return f"<table>{title}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _cell(value: object) -> str:
    if value is None:
        return "<td></td>"
    if isinstance(value, float):
        return f"<td>{value:,.4g}</td>"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"<td>{value:,}</td>"
    return f"<td>{escape(str(value))}</td>"
