"""Tables of text: one sample a row (a target and the steps of its series), or one long series.

Cells are separated by commas (csv) or tabs (tsv) and may stand in double quotes (RFC 4180). The
first row is a header where its value columns are not numbers, where the option `label` names one
of its cells, or where its target is the only one that is no number. Forecasting reads rows as time
steps and columns as features, without a target.

The columns of a test file are found by the names that the training file gives them. Where one of
the two has no header, they are those at the same places.
"""

import csv
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from search.errors import DataError
from search.uploads.dataset_metadata import ReadingOptions
from search.uploads.raw import Columns, RawDataset, stacked, unassigned
from search.uploads.text_lines import MISSING, is_number, numbered_lines, numbers

LONGEST_CELL = 10_000
"""Characters."""

_MOST_NAMES = 10
"""That a message lists."""

_SEPARATORS = {",": "commas", "\t": "tabs", ";": "semicolons"}


def read_csv(
    stream: BinaryIO,
    options: ReadingOptions,
    most_bytes: int,
    columns: Columns | None = None,
    *,
    names_first: bool = False,
) -> RawDataset:
    """Read a table whose cells are separated by commas.

    Args:
        stream: the file.
        options: how to read.
        most_bytes: that the samples may take as float32.
        columns: of the training file, where this is the test file.
        names_first: the first row is a header, whatever it holds.

    Raises:
        DataError: The table is damaged, or has other columns; the message names line and column.
    """
    return _read(stream, options, most_bytes, columns, separator=",", names_first=names_first)


def read_tsv(
    stream: BinaryIO, options: ReadingOptions, most_bytes: int, columns: Columns | None = None
) -> RawDataset:
    """Read a table whose cells are separated by tabs; see `read_csv`.

    Raises:
        DataError: The table is damaged, or has other columns; the message names line and column.
    """
    return _read(stream, options, most_bytes, columns, separator="\t")


@dataclass(frozen=True)
class _Layout:
    width: int
    target: int | None
    """The target's column; None for forecasting."""
    header: Sequence[str] | None
    order: Sequence[int]
    """The columns of the values."""

    @property
    def columns(self) -> Columns | None:
        return None if self.header is None else Columns(tuple(self.header), self.target)

    def place(self, line: int, column: int) -> str:
        name = "" if self.header is None else f", {self.header[column][:60]!r}"
        return f"line {line}, column {column} (from 0{name})"

    def values(self, row: Sequence[str]) -> Sequence[str]:
        return [row[column] for column in self.order]


def _read(
    stream: BinaryIO,
    options: ReadingOptions,
    most_bytes: int,
    columns: Columns | None,
    *,
    separator: str,
    names_first: bool = False,
) -> RawDataset:
    rows = _rows(stream, separator)
    first = next(rows, None)
    if first is None:
        raise DataError("the table is empty: 0 rows")
    layout = _layout(first, options, separator, columns, names_first=names_first)
    # A word above numbers is the target's name; above other words it is the first sample's class.
    word = _word_of_target(layout, first[1])
    series: list[NDArray[np.float32]] = []
    targets: list[str] = []
    size = 0
    for line, row in rows if layout.header or word else _chained(first, rows):
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
    known = [target for target in targets if target.lower() not in MISSING]
    if word and known and all(map(is_number, known)):
        layout = _with_header(layout, first, options, columns)
    elif word:
        targets.insert(0, word)
        series.insert(0, _numbers(layout, *first, options, separator))
    if not series:
        raise DataError("the table has a header and 0 rows of data")
    if layout.target is None:
        x = np.stack(series)[np.newaxis]
        lengths = np.array([x.shape[1]], dtype=np.int64)
        return RawDataset(
            x, lengths, None, unassigned(1), problem="forecasting", columns=layout.columns
        )
    x, lengths = stacked([values[:, np.newaxis] for values in series], most_bytes)
    return RawDataset(x, lengths, tuple(targets), unassigned(len(x)), columns=layout.columns)


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


def _layout(
    first: tuple[int, list[str]],
    options: ReadingOptions,
    separator: str,
    columns: Columns | None,
    *,
    names_first: bool,
) -> _Layout:
    line, row = first
    if columns is not None and (known := _as_in(columns, row)) is not None:
        return known
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
    order = [column for column in range(len(row)) if column != target]
    layout = _Layout(len(row), target, None, order)
    label = options.label
    named = label is not None and not is_number(label) and label in [cell.strip() for cell in row]
    if not names_first and not named and any(is_number(cell) for cell in layout.values(row)):
        return layout
    return _with_header(layout, first, options, columns)


def _word_of_target(layout: _Layout, row: Sequence[str]) -> str | None:
    """The target of a first row that is no header yet; None where it is a number."""
    if layout.header is not None or layout.target is None or is_number(row[layout.target]):
        return None
    return row[layout.target].strip()


def _with_header(
    layout: _Layout,
    first: tuple[int, list[str]],
    options: ReadingOptions,
    columns: Columns | None,
) -> _Layout:
    """The same layout with the first row as its header."""
    line, row = first
    names = [cell.strip() for cell in row]
    seen: dict[str, int] = {}
    for column, name in enumerate(names):
        if name and name in seen:
            raise DataError(
                f"line {line}: the header names columns {seen[name]} and {column} (from 0) "
                f"both {name[:60]!r}"
            )
        seen[name] = column
    if columns is not None:
        _check_names(line, Columns(tuple(names), layout.target), columns, options)
    return replace(layout, header=names)


def _as_in(columns: Columns, row: Sequence[str]) -> _Layout | None:
    """The layout of a first row that names the training file's columns; None: it names others."""
    names = tuple(cell.strip() for cell in row)
    places = {name: column for column, name in enumerate(names)}
    if names == columns.names:
        order = list(range(len(names)))
    elif len(places) == len(names) and sorted(names) == sorted(columns.names):
        order = [places[name] for name in columns.names]
    else:
        return None
    target = None if columns.target is None else order.pop(columns.target)
    return _Layout(len(names), target, names, order)


def _check_names(line: int, own: Columns, others: Columns, options: ReadingOptions) -> None:
    """Refuse a header that is not the training file's; series may be of other lengths if padded."""
    (own_target, own_values), (target, values) = own.parted, others.parted
    steps = min(len(own_values), len(values))
    same = own_target == target and own_values[:steps] == values[:steps]
    if options.unequal_lengths == "pad" and same:
        return
    pairs = enumerate(zip_longest(own.names, others.names))
    first = next(column for column, (name, other) in pairs if name != other)
    raise DataError(
        f"line {line}: from column {first} (from 0) on, the header is "
        f"{_listed(own.names[first:])}; in the training file it is "
        f"{_listed(others.names[first:])}; allowed are the same names, in any order"
    )


def _target(row: Sequence[str], label: str | None) -> int:
    if label is None:
        return 0
    names = [cell.strip() for cell in row]
    number = int(label) if label.isascii() and label.isdigit() else None
    if label in names and (number is None or not any(is_number(name) for name in names)):
        return names.index(label)
    if number is None:
        raise DataError(
            f"label: no column is called {label!r}; the first row holds {_listed(names)}"
        )
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
            lambda index: layout.place(line, layout.order[index]),
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


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
    return (", ".join(repr(name[:30]) for name in names[:_MOST_NAMES]) or "at its end") + more
