"""The .ts format of the UEA and UCR archives, as sktime and aeon read it.

Lines that begin with `#` are comments and lines that begin with `@` the header, whose keys may be
in any case; behind `@data` every line is a case: its dimensions separated by `:`, the values of a
dimension by `,`, and behind the last `:` the class (`@classLabel true ...`) or the number to be
predicted (`@targetLabel true`). `?` is a missing value.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from search.errors import DataError
from search.uploads.dataset_metadata import Problem, ReadingOptions
from search.uploads.raw import Columns, RawDataset, stacked, unassigned
from search.uploads.text_lines import numbered_lines, numbers


@dataclass
class _Header:
    keys: dict[str, str] = field(default_factory=dict[str, str])
    """What follows each key, by the key in small letters."""
    data_line: int = 0

    def says(self, key: str) -> bool | None:
        """The key's truth value; None where it is missing."""
        words = self.keys.get(key, "").lower().split()
        if key not in self.keys:
            return None
        if not words or words[0] not in ("true", "false"):
            raise DataError(f"the header's @{key} is {self.keys[key][:60]!r}; true or false follow")
        return words[0] == "true"

    @property
    def labels(self) -> frozenset[str]:
        return frozenset(self.keys["classlabel"].split()[1:])


def read(
    stream: BinaryIO, options: ReadingOptions, most_bytes: int, _columns: Columns | None = None
) -> RawDataset:
    """Read a .ts file.

    Raises:
        DataError: The file is damaged; the message names the line.
    """
    lines = ((number, line.strip()) for number, line in numbered_lines(stream))
    header = _header(lines)
    problem = _problem(header)
    series: list[NDArray[np.float32]] = []
    targets: list[str] = []
    size = 0
    for number, line in lines:
        if not line or line.startswith("#"):
            continue
        parts = line.split(":")
        if problem != "forecasting":
            targets.append(_target(parts.pop().strip(), header, problem, number))
        case = _case(parts, number, options)
        _check_dimensions(case.shape[1], series, header, number)
        series.append(case)
        size += case.nbytes
        if size > most_bytes:
            raise DataError(f"the values take more than {most_bytes} bytes as float32")
    if not series:
        raise DataError(f"0 cases follow the @data of line {header.data_line}")
    x, lengths = stacked(series, most_bytes)
    return RawDataset(
        x, lengths, tuple(targets) if targets else None, unassigned(len(x)), problem=problem
    )


def _header(lines: Iterator[tuple[int, str]]) -> _Header:
    header = _Header()
    number = 0
    for number, line in lines:
        if not line or line.startswith("#"):
            continue
        if not line.startswith("@"):
            raise DataError(
                f"line {number} begins with {line[:30]!r}; before @data every line begins with "
                "@ or #"
            )
        words = line[1:].split(maxsplit=1)
        key = words[0].lower() if words else ""
        if key == "data":
            header.data_line = number
            return header
        if key in header.keys:
            raise DataError(f"line {number}: the header has {line[: 1 + len(key)][:30]!r} twice")
        header.keys[key] = words[1] if len(words) > 1 else ""
    raise DataError(f"the file ends after line {number} without a line @data")


def _problem(header: _Header) -> Problem:
    """What the header says the data are for."""
    if header.says("timestamps"):
        raise DataError(
            "@timeStamps true: series with time stamps are not read; resample them to equal steps "
            "and write the values alone"
        )
    classes, numbers_follow = header.says("classlabel"), header.says("targetlabel")
    if classes is None and numbers_follow is None:
        raise DataError(
            f"line {header.data_line}: the header lacks both @classLabel and @targetLabel"
        )
    if classes and numbers_follow:
        raise DataError("the header has both @classLabel true and @targetLabel true; one may stand")
    if classes and not header.labels:
        raise DataError("the header's @classLabel true names no labels")
    if classes:
        return "classification"
    return "regression" if numbers_follow else "forecasting"


def _target(word: str, header: _Header, problem: Problem, number: int) -> str:
    if problem == "classification" and word not in header.labels:
        known = ", ".join(repr(label[:30]) for label in sorted(header.labels)[:10])
        raise DataError(
            f"line {number}: the label {word[:60]!r} is not in the header's list ({known}"
            f"{', ...' if len(header.labels) > 10 else ''})"
        )
    return word


def _case(parts: list[str], number: int, options: ReadingOptions) -> NDArray[np.float32]:
    """The values of a case, `[T, dimensions]`."""
    if not parts:
        raise DataError(f"line {number} has a label and no values, or no label behind a colon")
    dimensions: list[NDArray[np.float32]] = []
    for dimension, part in enumerate(parts, start=1):
        if not part.strip():
            raise DataError(f"line {number}, dimension {dimension} is empty")
        place = f"line {number}, dimension {dimension}, value"
        values = numbers(part.split(","), options, lambda index, at=place: f"{at} {index + 1}")
        if dimensions and len(values) != len(dimensions[0]):
            raise DataError(
                f"line {number}, dimension {dimension} has {len(values)} values; "
                f"dimension 1 has {len(dimensions[0])}"
            )
        dimensions.append(values)
    return np.stack(dimensions, axis=1)


def _check_dimensions(
    found: int, series: list[NDArray[np.float32]], header: _Header, number: int
) -> None:
    if series and found != series[0].shape[1]:
        raise DataError(
            f"line {number} has {found} dimensions; the first case has {series[0].shape[1]}"
        )
    announced = header.keys.get("dimensions", header.keys.get("dimension", str(found))).strip()
    if announced != str(found):
        raise DataError(
            f"line {number} has {found} dimensions; the header announces {announced[:30]!r}"
        )
    if found > 1 and header.says("univariate"):
        raise DataError(f"line {number} has {found} dimensions; the header says @univariate true")
