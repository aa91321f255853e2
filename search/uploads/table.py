"""Tables of text: one sample a row (a target and the steps of its series), or one long series.

Cells are separated by commas (csv) or tabs (tsv) and may stand in double quotes (RFC 4180). The
first row is a header where its value columns are not numbers, or where the option `label` names one
of its cells. Forecasting reads rows as time steps and columns as features, without a target.
"""

import csv
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from search.errors import DataError
from search.uploads.dataset_metadata import ReadingOptions
from search.uploads.raw import RawDataset, stacked, unassigned
from search.uploads.text_lines import is_number, numbered_lines, numbers

LONGEST_CELL = 10_000
"""Characters."""

_SEPARATORS = {",": "commas", "\t": "tabs", ";": "semicolons"}


def read_csv(stream: BinaryIO, options: ReadingOptions, most_bytes: int) -> RawDataset:
    """Read a table whose cells are separated by commas.

    Raises:
        DataError: The table is damaged; the message names line and column.
    """
    return _read(stream, options, most_bytes, separator=",")


def read_tsv(stream: BinaryIO, options: ReadingOptions, most_bytes: int) -> RawDataset:
    """Read a table whose cells are separated by tabs.

    Raises:
        DataError: The table is damaged; the message names line and column.
    """
    return _read(stream, options, most_bytes, separator="\t")


@dataclass(frozen=True)
class _Layout:
    width: int
    target: int | None
    """The target's column; None for forecasting."""
    header: Sequence[str] | None

    def place(self, line: int, column: int) -> str:
        name = "" if self.header is None else f", {self.header[column][:60]!r}"
        return f"line {line}, column {column} (from 0{name})"

    def values(self, row: Sequence[str]) -> Sequence[str]:
        if self.target is None:
            return row
        return [*row[: self.target], *row[self.target + 1 :]]

    def column_of_value(self, index: int) -> int:
        return index if self.target is None or index < self.target else index + 1


def _read(
    stream: BinaryIO, options: ReadingOptions, most_bytes: int, *, separator: str
) -> RawDataset:
    rows = _rows(stream, separator)
    first = next(rows, None)
    if first is None:
        raise DataError("the table is empty: 0 rows")
    layout = _layout(first, options, separator)
    series: list[NDArray[np.float32]] = []
    targets: list[str] = []
    size = 0
    for line, row in rows if layout.header else _chained(first, rows):
        if len(row) != layout.width:
            raise DataError(
                f"line {line} has {len(row)} columns; the first row has {layout.width}"
                f"{_hint(row, separator)}"
            )
        if layout.target is not None:
            targets.append(row[layout.target].strip())
        series.append(_numbers(layout, line, row, options, separator))
        size += series[-1].nbytes
        if size > most_bytes:
            raise DataError(f"the values take more than {most_bytes} bytes as float32")
    if not series:
        raise DataError("the table has a header and 0 rows of data")
    if layout.target is None:
        x = np.stack(series)[np.newaxis]
        lengths = np.array([x.shape[1]], dtype=np.int64)
        return RawDataset(x, lengths, None, unassigned(1), problem="forecasting")
    x, lengths = stacked([values[:, np.newaxis] for values in series], most_bytes)
    return RawDataset(x, lengths, tuple(targets), unassigned(len(x)))


def _chained(
    first: tuple[int, list[str]], rows: Iterator[tuple[int, list[str]]]
) -> Iterator[tuple[int, list[str]]]:
    yield first
    yield from rows


def _rows(stream: BinaryIO, separator: str) -> Iterator[tuple[int, list[str]]]:
    """The rows and the numbers of their last lines; blank lines may only stand at the end."""
    reader = csv.reader(
        (line for _, line in numbered_lines(stream)), delimiter=separator, strict=True
    )
    blank: int | None = None
    while True:
        try:
            row = next(reader, None)
        except csv.Error as error:
            what, is_return, _ = str(error).partition(" - do you need to open the file")
            advice = "; lines end in LF or CRLF, not in CR alone" if is_return else ""
            raise DataError(f"line {reader.line_num}: {what}{advice}") from error
        if row is None:
            return
        if not any(cell.strip() for cell in row) and len(row) <= 1:
            blank = blank or reader.line_num
            continue
        if blank is not None:
            raise DataError(f"line {blank} is blank, and line {reader.line_num} goes on")
        for column, cell in enumerate(row):
            if len(cell) > LONGEST_CELL:
                raise DataError(
                    f"line {reader.line_num}, column {column} (from 0) has {len(cell)} characters; "
                    f"at most {LONGEST_CELL}"
                )
        yield reader.line_num, row


def _layout(first: tuple[int, list[str]], options: ReadingOptions, separator: str) -> _Layout:
    line, row = first
    if options.problem == "forecasting":
        if options.label is not None:
            raise DataError(f"label: {options.label!r} is not used by forecasting; leave it out")
        target = None
    else:
        if len(row) < 2:
            raise DataError(
                f"line {line} has one column; a target and at least one value are needed, or "
                f'problem: "forecasting"{_hint(row, separator)}'
            )
        target = _target(row, options.label)
    layout = _Layout(len(row), target, None)
    label = options.label
    named = label is not None and not is_number(label) and label in [cell.strip() for cell in row]
    if not named and any(is_number(cell) for cell in layout.values(row)):
        return layout
    names = [cell.strip() for cell in row]
    seen: dict[str, int] = {}
    for column, name in enumerate(names):
        if name and name in seen:
            raise DataError(
                f"line {line}: the header names columns {seen[name]} and {column} (from 0) "
                f"both {name[:60]!r}"
            )
        seen[name] = column
    return _Layout(len(row), target, names)


def _target(row: Sequence[str], label: str | None) -> int:
    if label is None:
        return 0
    names = [cell.strip() for cell in row]
    number = int(label) if label.isascii() and label.isdigit() else None
    if label in names and (number is None or not any(is_number(name) for name in names)):
        return names.index(label)
    if number is None:
        known = ", ".join(repr(name[:30]) for name in names[:10])
        raise DataError(f"label: no column is called {label!r}; the first row holds {known}")
    if number >= len(row):
        raise DataError(f"label: {number} is no column; allowed are 0 to {len(row) - 1}")
    return number


def _numbers(
    layout: _Layout, line: int, row: Sequence[str], options: ReadingOptions, separator: str
) -> NDArray[np.float32]:
    try:
        return numbers(
            layout.values(row),
            options,
            lambda index: layout.place(line, layout.column_of_value(index)),
        )
    except DataError as error:
        hint = _hint(row, separator)
        if hint:
            raise DataError(f"{error}{hint}") from error
        raise


def _hint(row: Sequence[str], separator: str) -> str:
    other = next((sign for sign in _SEPARATORS if sign != separator and sign in "".join(row)), None)
    if other is None:
        return ""
    return f" (cells must be separated by {_SEPARATORS[separator]}; found are {_SEPARATORS[other]})"
