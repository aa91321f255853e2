"""Parts of Markdown that cards are made of."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from search.documents.readable import NONE, number


def table(titles: Sequence[str], rows: Iterator[Sequence[str]], *, words: int) -> Iterator[str]:
    """A table whose first columns are `words`, and whose others are numbers."""
    yield f"| {' | '.join(titles)} |"
    yield f"|{'---|' * words}{'---:|' * (len(titles) - words)}"
    yield from (f"| {' | '.join(row)} |" for row in rows)


def estimate(found: Any) -> str:
    """A measurement's median with its interval; a dash where there is none."""
    if not isinstance(found, Mapping):
        return NONE
    low, median, high = (number(found.get(name)) for name in ("low", "median", "high"))  # pyright: ignore[reportUnknownArgumentType, reportUnknownMemberType] -- JSON
    return f"{median} ({low} to {high})"


def one_line(text: str) -> str:
    """A user's words on one line, which end no table and no code."""
    return " ".join(text.split()).replace("`", "'").replace("|", "\\|")
