"""The text files of the UCR time series archive: a series a line, its class label first."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from search.errors import DataError
from search.formats.files import text
from search.formats.numbers import decimal, shown

MOST_VALUES = 2**28
"""Series times values of the longest one: 1 GiB of float32."""

_LARGEST_LABEL = 2**31 - 1
_MISSING = "nan"


@dataclass(frozen=True)
class Series:
    """What a file holds: N series of up to L values."""

    values: NDArray[Any]
    """`[N, L]` float32; 0 behind a series' end."""
    lengths: NDArray[Any]
    """`[N]` int64, 1..L."""
    labels: NDArray[Any]
    """`[N]` int64, as they stand in the file."""
    comma_separated: bool
    """As the files of 2015 are; those of 2018 have tabs."""


def read(path: Path) -> Series:
    """Read a file, plain or gzipped.

    Values are separated by tabs, by commas, or by blanks. Labels are whole numbers, `1.0` included.
    `NaN` behind the last value ends a series early, as in the sets of unequal lengths since 2018.

    Raises:
        DataError: The file is missing, damaged or of another format, or a value is missing within a
            series; the message names the file and the line.
    """
    rows: list[NDArray[Any]] = []
    labels: list[int] = []
    content = text(path)
    for number, line in enumerate(content.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            label, values = _series(line.strip())
        except ValueError as error:
            raise DataError(f"{path}, line {number}: {error}") from error
        labels.append(label)
        rows.append(values)
    if not rows:
        raise DataError(f"{path} holds no series")
    longest = max(map(len, rows))
    if len(rows) * longest > MOST_VALUES:
        raise DataError(
            f"{path} holds {len(rows)} series of up to {longest} values; "
            f"{MOST_VALUES} values together are the most"
        )
    padded = np.zeros((len(rows), longest), dtype=np.float32)
    for row, values in zip(padded, rows, strict=True):
        row[: len(values)] = values
    return Series(
        padded,
        np.array([len(row) for row in rows], dtype=np.int64),
        np.array(labels, dtype=np.int64),
        "," in content,
    )


def _series(line: str) -> tuple[int, NDArray[Any]]:
    separator = next((sign for sign in (",", "\t") if sign in line), None)
    label, *fields = (field.strip() for field in line.split(separator))
    while fields and fields[-1].lower() == _MISSING:
        fields.pop()
    if not fields:
        raise ValueError(f"no value follows the label {shown(label)}")
    return _label(label), np.array([_value(*item) for item in enumerate(fields, 1)], np.float32)


def _label(field: str) -> int:
    number = decimal(field)
    if not number.is_integer() or abs(number) > _LARGEST_LABEL:
        raise ValueError(
            f"the label {shown(field)} is not a whole number of {-_LARGEST_LABEL}..{_LARGEST_LABEL}"
        )
    return int(number)


def _value(position: int, field: str) -> float:
    if field.lower() == _MISSING:
        raise ValueError(f"value {position} is missing (NaN), and others follow it")
    return decimal(field)
