"""Long lists in parts: a statement takes no more values than its database allows."""

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Final, TypeVar

_T = TypeVar("_T")

MOST_VALUES: Final = 1000
"""That a statement is given of one list; SQLite takes 32766 in all, PostgreSQL twice as many."""


def batched(values: Iterable[_T], size: int = MOST_VALUES) -> Iterator[list[_T]]:
    """The values in their order, so many at a time."""
    remaining = iter(values)
    while batch := list(islice(remaining, size)):
        yield batch
