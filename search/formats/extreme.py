"""The text format of the Extreme Classification Repository: samples with several labels each."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from search.errors import DataError
from search.formats.files import text
from search.formats.numbers import decimal, shown, whole
from search.formats.sparse_rows import SparseRows, ascending

MOST_COLUMNS = 2**31 - 1


@dataclass(frozen=True)
class LabelledRows:
    """Samples: their features, and which labels they have (1)."""

    features: SparseRows
    labels: SparseRows


def read(path: Path) -> LabelledRows:
    """Read a file, plain or gzipped.

    The first line is `N D L`: samples, features, labels. Each of the N lines after it is a sample:
    the numbers of its labels, separated by commas, and `feature:value` pairs, separated by blanks;
    both are numbered from 0. A line that begins with a blank, or with a pair, has no label. Source:
    README of the repository (Bhatia et al., The Extreme Classification Repository, 2016).

    Raises:
        DataError: The file is missing, damaged or of another format; the message names the file
            and the line.
    """
    header, *lines = text(path).removesuffix("\n").split("\n")
    try:
        samples, features, labels = _sizes(header)
    except ValueError as error:
        raise DataError(f"{path}, line 1: {error}") from error
    if len(lines) < samples or any(map(str.strip, lines[samples:])):
        raise DataError(
            f"{path}, line 1: announces {samples} samples, but {len(lines)} lines follow"
        )
    sets: list[list[tuple[int, float]]] = []
    rows: list[list[tuple[int, float]]] = []
    for number, line in enumerate(lines[:samples], start=2):
        try:
            chosen, values = _sample(line, features=features, labels=labels)
        except ValueError as error:
            raise DataError(f"{path}, line {number}: {error}") from error
        sets.append(chosen)
        rows.append(values)
    return LabelledRows(SparseRows.of(rows, width=features), SparseRows.of(sets, width=labels))


def read_rows(path: Path, *, samples: int) -> NDArray[Any]:
    """Read which samples a part has: the first column of a split file, numbered from 1 there.

    A split file of the repository has a column for each of several random splits.

    Returns:
        Row numbers from 0, `[part]` int64.

    Raises:
        DataError: The file is missing or damaged, names a sample that is not among the `samples`,
            or one twice; the message names the file and the line.
    """
    rows: dict[int, int] = {}
    for number, line in enumerate(text(path).split("\n"), start=1):
        if not line.strip():
            continue
        try:
            row = whole(line.split()[0], low=1, high=samples)
            if row in rows:
                raise ValueError(f"sample {row} is in line {rows[row]} already")
        except ValueError as error:
            raise DataError(f"{path}, line {number}: {error}") from error
        rows[row] = number
    if not rows:
        raise DataError(f"{path} names no sample")
    return np.fromiter(rows, dtype=np.int64) - 1


def _sizes(header: str) -> tuple[int, int, int]:
    fields = header.split()
    if len(fields) != 3:
        raise ValueError(
            f"expected is a header of three sizes (samples, features, labels), not {shown(header)}"
        )
    samples, features, labels = (whole(field, low=1, high=MOST_COLUMNS) for field in fields)
    return samples, features, labels


def _sample(
    line: str, *, features: int, labels: int
) -> tuple[list[tuple[int, float]], list[tuple[int, float]]]:
    fields = line.split()
    unlabelled = not fields or line[0].isspace() or ":" in fields[0]
    names = [] if unlabelled else fields.pop(0).split(",")
    chosen = [(whole(name, high=labels - 1), 1.0) for name in names]
    row: list[tuple[int, float]] = []
    for field in fields:
        column, colon, value = field.partition(":")
        if not colon:
            raise ValueError(f"expected is feature:value, not {shown(field)}")
        row.append((whole(column, high=features - 1), decimal(value)))
    numbers = [pair for pair in ascending(row, what="feature") if pair[1] != 0]
    return ascending(chosen, what="label"), numbers
