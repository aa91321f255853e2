"""Long lists in parts: a statement takes no more values than its database allows."""

from collections.abc import Iterator, Sequence
from typing import Final, TypeVar

_T = TypeVar("_T")

MOST_VALUES: Final = 1000
"""That a statement is given of one list; SQLite takes 32766 in all, PostgreSQL twice as many."""


def batched(values: Sequence[_T]) -> Iterator[Sequence[_T]]:
    """The values in their order, so many at a time."""
    for first in range(0, len(values), MOST_VALUES):
        yield values[first : first + MOST_VALUES]
