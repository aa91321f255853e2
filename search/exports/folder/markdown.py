"""Parts of Markdown that cards are made of."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from search.documents.readable import NONE, number

_Card = TypeVar("_Card")


def document(card: _Card, sections: Sequence[tuple[str, Callable[[_Card], Iterator[str]]]]) -> str:
    """What each writes of a card under its title, the first of which is the card's; none: left out.

    Equal cards give equal texts.
    """
    parts: list[str] = []
    for place, (title, write) in enumerate(sections):
        lines = list(write(card))
        if lines:
            parts.append("\n".join([f"{'##' if place else '#'} {title}", "", *lines]))
    return "\n\n".join(parts) + "\n"


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
