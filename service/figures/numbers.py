"""Trials named by number, in few characters: `3,7-12`."""

import re
from collections.abc import Iterable
from typing import Final

MOST_NAMED: Final = 5000
"""How many trials one request may name."""

_PART: Final = re.compile(r"(\d{1,9})(?:-(\d{1,9}))?")


def read_numbers(words: str) -> tuple[int, ...]:
    """The numbers of a list such as `3,7-12`, in order, each once.

    Raises:
        ValueError: a part is neither a number nor a range, or it is too many.
    """
    found: set[int] = set()
    for part in filter(None, re.split(r"[\s,]+", words)):
        match = _PART.fullmatch(part)
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
        if last < first:
            raise ValueError(
                "allowed are trial numbers and ranges joined by commas, such as 3,7-12; "
                f"not {part!r}"
            )
        if last - first >= MOST_NAMED or len(found) + last - first >= MOST_NAMED:
            raise ValueError(
                f"at most {MOST_NAMED:,} trials are named at once; {words[:80]!r} has more"
            )
        found.update(range(first, last + 1))
    return tuple(sorted(found))


def readable_numbers(words: str) -> str:
    """The same words, if they can be read; for what validates a query.

    Raises:
        ValueError: as `read_numbers`.
    """
    read_numbers(words)
    return words


def write_numbers(numbers: Iterable[int]) -> str:
    """The same list in its shortest form."""
    runs: list[list[int]] = []
    for number in sorted(set(numbers)):
        if runs and number == runs[-1][1] + 1:
            runs[-1][1] = number
        else:
            runs.append([number, number])
    return ",".join(f"{a}" if a == b else f"{a}-{b}" for a, b in runs)
