"""The files of a multi-label data set in the user's data folder, in the layouts that are known."""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from search.errors import DataError
from search.formats import arff, extreme, label_names
from search.formats.extreme import LabelledRows
from search.formats.files import find, locate
from search.formats.sparse_rows import ARRAYS, SparseRows
from search.tasks.array_cache import Arrays, cached_arrays
from search.tasks.download import sha256_of

_PARTS = ("train", "test")


@dataclass(frozen=True)
class LabelledFiles:
    """The files of a set and the way to read them."""

    paths: tuple[Path, ...]
    read: Callable[..., tuple[LabelledRows, LabelledRows]]
    """Takes the paths; gives the training and the test samples."""

    @property
    def checksums(self) -> tuple[str, ...]:
        """SHA-256 of each file."""
        return tuple(map(sha256_of, self.paths))

    def digest(self, more: str = "") -> str:
        """Name what follows from the files, and from something more."""
        return hashlib.sha256(" ".join([*self.checksums, more]).encode()).hexdigest()[:32]

    def cached(self, cache: Path) -> tuple[LabelledRows, LabelledRows]:
        """As `parts`, parsed once and kept in a folder of the cache."""
        names = [f"{part}_{what}" for part in _PARTS for what in ("features", "labels")]

        def parsed() -> Arrays:
            matrices = [rows for part in self.parts() for rows in (part.features, part.labels)]
            arrays: dict[str, NDArray[Any]] = {}
            for name, rows in zip(names, matrices, strict=True):
                arrays |= rows.arrays(name)
            return arrays

        arrays = cached_arrays(
            cache / f"multilabel-{self.digest()}",
            tuple(f"{name}_{array}" for name in names for array in ARRAYS),
            parsed,
        )
        train, test = (
            LabelledRows(
                SparseRows.named(arrays, f"{part}_features"),
                SparseRows.named(arrays, f"{part}_labels"),
            )
            for part in _PARTS
        )
        return train, test

    def parts(self) -> tuple[LabelledRows, LabelledRows]:
        """Read training and test samples.

        Raises:
            DataError: A file is damaged, or the files do not go together.
        """
        train, test = self.read(*self.paths)
        sizes = [(part.features.width, part.labels.width) for part in (train, test)]
        if sizes[0] != sizes[1]:
            raise DataError(
                f"{self.paths[0]} has {sizes[0][0]} features and {sizes[0][1]} labels, but "
                f"{self.paths[1]} has {sizes[1][0]} and {sizes[1][1]}"
            )
        return train, test


def find_files(name: str, *, folder: Path | None, task: str) -> LabelledFiles:
    """Find the files of a set, in `multilabel/<name>/` or `<name>/`.

    Known layouts: Mulan's `<name>-train.arff`, `<name>-test.arff` and `<name>.xml`; in the text
    format of the Extreme Classification Repository `<name>_train.txt` and `<name>_test.txt`, or
    `<name>_data.txt` with `<name>_trSplit.txt` and `<name>_tstSplit.txt`, of which the first split
    is taken. Names may be capitalised, and `_` may be `-`.

    Raises:
        DataError: A file is missing; the message says which to put where.
    """
    layouts = (
        (("-train.arff", "-test.arff", ".xml"), _read_mulan),
        (("_train.txt", "_test.txt"), _read_pair),
        (("_data.txt", "_trSplit.txt", "_tstSplit.txt"), _read_splits),
    )
    # Where no layout's first file is there, the first layout's is asked for.
    endings, read = next(
        (
            layout
            for layout in layouts
            if folder is not None and locate(folder, *_names(name, layout[0][0]))
        ),
        layouts[0],
    )
    paths = tuple(find(folder, *_names(name, ending), task=task) for ending in endings)
    return LabelledFiles(paths, read)


def _names(name: str, ending: str) -> list[str]:
    hyphens = name.replace("_", "-")
    spellings = [name, hyphens, name.capitalize(), name.lower()]
    if ending == ".xml":
        # A reduced set, such as mediamill_reduced, has the labels of the whole one.
        spellings.append(hyphens.partition("-")[0])
    return [
        f"{place}{name}/{spelling}{ending}"
        for place in ("multilabel/", "")
        for spelling in dict.fromkeys(spellings)
    ]


def _read_mulan(train: Path, test: Path, names: Path) -> tuple[LabelledRows, LabelledRows]:
    labels = label_names.read(names)
    tables = [arff.read(path) for path in (train, test)]
    columns = [[attribute.name for attribute in table.attributes] for table in tables]
    if columns[0] != columns[1]:
        raise DataError(f"{train} and {test} differ in their attributes")
    missing = [label for label in labels if label not in set(columns[0])]
    if missing:
        raise DataError(f"{names} names the label {missing[0]!r}, which {train} has no column of")
    if len(labels) == len(columns[0]):
        raise DataError(f"{names} names all columns of {train} as labels; none is a feature")
    is_label = np.isin(columns[0], labels)
    parts: list[LabelledRows] = []
    for path, table in zip((train, test), tables, strict=True):
        chosen = table.rows.only(np.flatnonzero(is_label))
        other = chosen.values[chosen.values != 1]
        if len(other):
            raise DataError(f"{path}: a label is {other[0]:g}; allowed are 0 and 1")
        parts.append(LabelledRows(table.rows.only(np.flatnonzero(~is_label)), chosen))
    return parts[0], parts[1]


def _read_pair(train: Path, test: Path) -> tuple[LabelledRows, LabelledRows]:
    return extreme.read(train), extreme.read(test)


def _read_splits(data: Path, train: Path, test: Path) -> tuple[LabelledRows, LabelledRows]:
    every = extreme.read(data)
    rows = [extreme.read_rows(path, samples=len(every.labels)) for path in (train, test)]
    both = np.intersect1d(rows[0], rows[1])
    if len(both):
        raise DataError(f"sample {both[0] + 1} of {data} is in {train} and in {test}")
    first, second = (
        LabelledRows(every.features.rows(part), every.labels.rows(part)) for part in rows
    )
    return first, second
