"""Pieces of Markdown."""

import inspect
import re
from collections.abc import Iterable, Iterator, Sequence


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """The lines of a table; pipes within cells are escaped."""
    yield f"| {' | '.join(head)} |"
    yield f"|{'---|' * len(head)}"
    for row in rows:
        yield f"| {' | '.join(flowing(cell).replace('|', chr(92) + '|') for cell in row)} |"


def flowing(text: str) -> str:
    """A text as one line."""
    return re.sub(r"\s+", " ", text).strip()


def first_paragraph(text: str | None) -> str:
    """What a docstring says first, as one line."""
    return flowing(inspect.cleandoc(text or "").split("\n\n")[0])


def written_by(page: str) -> str:
    """The sentence below each title."""
    return f"This page is written from the code, by `python -m tests.references`: {page}."
