"""Lines and numbers of text files, whose faults name their line and place."""

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from search.errors import DataError
from search.uploads.dataset_metadata import ReadingOptions

LONGEST_LINE = 2**26
"""Bytes."""

LONGEST_NUMBER = 100
"""Characters."""

MISSING = ("", "?", "nan")
"""What stands for a missing value, in small letters."""


def numbered_lines(stream: BinaryIO) -> Iterator[tuple[int, str]]:
    """The lines of a UTF-8 text and their numbers from 1, each with its line end.

    A byte order mark at the beginning is dropped.

    Raises:
        DataError: A line is no UTF-8, holds a NUL byte or is longer than `LONGEST_LINE`.
    """
    for number in itertools.count(1):
        raw = stream.readline(LONGEST_LINE + 1)
        if not raw:
            return
        if len(raw) > LONGEST_LINE:
            raise DataError(f"line {number} is longer than {LONGEST_LINE} bytes")
        nul = raw.find(b"\0")
        if nul >= 0:
            raise DataError(f"line {number} holds a NUL byte, at byte {nul + 1}; is this text?")
        try:
            # Decoded with the mark, for the place in an error to count it as an editor does.
            text = raw.decode()
        except UnicodeDecodeError as error:
            raise DataError(
                f"line {number} is not UTF-8: byte {error.start + 1} is {raw[error.start]:#04x}"
            ) from error
        yield number, text.removeprefix("\ufeff") if number == 1 else text


def is_number(cell: str) -> bool:
    """Whether a cell is a number, or stands for a missing one."""
    return _number(cell) is not None


def numbers(
    cells: Sequence[str], options: ReadingOptions, place: Callable[[int], str]
) -> NDArray[np.float32]:
    """The numbers of some cells, with NaN for missing values where they are allowed.

    Args:
        cells: decimal, with or without an exponent.
        options: says whether values may be missing.
        place: words for where the cell of an index stands.

    Raises:
        DataError: A cell is no number, infinite, beyond single precision, or missing.
    """
    try:
        values = np.array([float(cell) for cell in cells], dtype=np.float64)
    except ValueError:
        values = None
    # float() also takes 1_000 and the digits of other scripts, which nobody means in a data file.
    plain = "".join(cells)
    if values is None or "_" in plain or not plain.isascii():
        values = np.array([_checked(cell, index, place) for index, cell in enumerate(cells)])
    if options.missing == "refuse":
        _refuse(np.isnan(values), cells, place, 'is missing; missing values need missing: "mean"')
    with np.errstate(over="ignore"):
        single = values.astype(np.float32)
    _refuse(np.isinf(single), cells, place, "is infinite, or beyond single precision (3.4e38)")
    return single


def _refuse(
    faulty: NDArray[np.bool_], cells: Sequence[str], place: Callable[[int], str], why: str
) -> None:
    if faulty.any():
        index = int(faulty.argmax())
        raise DataError(f"{place(index)}: {cells[index][:60]!r} {why}")


def _checked(cell: str, index: int, place: Callable[[int], str]) -> float:
    number = _number(cell)
    if number is None:
        raise DataError(f"{place(index)}: {cell[:60]!r} is not a number")
    return number


def _number(cell: str) -> float | None:
    cell = cell.strip()
    if cell.lower() in MISSING:
        return float("nan")
    if len(cell) > LONGEST_NUMBER or "_" in cell or not cell.isascii():
        return None
    try:
        return float(cell)
    except ValueError:
        return None
