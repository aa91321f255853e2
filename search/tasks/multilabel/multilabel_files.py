"""The files of a multi-label data set in the user's data folder, in the layouts that are known."""

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from search.errors import DataError
from search.formats import arff, extreme, label_names
from search.formats.extreme import LabelledRows
from search.formats.files import find, locate
from search.formats.sparse_rows import ARRAYS, SparseRows
from search.tasks.array_cache import Arrays, cached_arrays
from search.tasks.download import sha256_of

_PARTS = ("train", "test")
_NAMES = "label_names"
# Part of the cache's names: it changes with what the same files are made into.
_FORM = "2"

Parsed = tuple[LabelledRows, LabelledRows, tuple[str, ...] | None]
"""Training samples, test samples, and the labels' names where the files have any."""


@dataclass(frozen=True)
class LabelledFiles:
    """The files of a set and the way to read them."""

    paths: tuple[Path, ...]
    read: Callable[..., Parsed]
    """Takes the paths."""

    @property
    def checksums(self) -> tuple[str, ...]:
        """SHA-256 of each file."""
        return tuple(map(sha256_of, self.paths))

    def digest(self, more: str = "") -> str:
        """Name what follows from the files, and from something more."""
        return hashlib.sha256(" ".join([*self.checksums, more]).encode()).hexdigest()[:32]

    def cached(self, cache: Path) -> tuple[LabelledRows, LabelledRows]:
        """As `parts`, parsed once and kept in a folder of the cache."""
        arrays = self._arrays(cache)
        train, test = (
            LabelledRows(
                SparseRows.named(arrays, f"{part}_features"),
                SparseRows.named(arrays, f"{part}_labels"),
            )
            for part in _PARTS
        )
        return train, test

    def label_names(self, cache: Path) -> tuple[str, ...]:
        """The labels' own names, or their numbers from 0 where the files have no names."""
        return tuple(json.loads(self._arrays(cache)[_NAMES].tobytes()))

    def _arrays(self, cache: Path) -> Arrays:
        names = [f"{part}_{what}" for part in _PARTS for what in ("features", "labels")]

        def parsed() -> Arrays:
            train, test, labels = self.parts()
            matrices = [train.features, train.labels, test.features, test.labels]
            text = json.dumps(labels or [str(number) for number in range(train.labels.width)])
            arrays = {_NAMES: np.frombuffer(text.encode(), dtype=np.uint8)}
            for name, rows in zip(names, matrices, strict=True):
                arrays |= rows.arrays(name)
            return arrays

        return cached_arrays(
            cache / f"multilabel-{_FORM}-{self.digest()}",
            (_NAMES, *(f"{name}_{array}" for name in names for array in ARRAYS)),
            parsed,
        )

    def parts(self) -> Parsed:
        """Read training and test samples.

        Raises:
            DataError: A file is damaged, or the files do not go together.
        """
        train, test, labels = self.read(*self.paths)
        sizes = [(part.features.width, part.labels.width) for part in (train, test)]
        if sizes[0] != sizes[1]:
            raise DataError(
                f"{self.paths[0]} has {sizes[0][0]} features and {sizes[0][1]} labels, but "
                f"{self.paths[1]} has {sizes[1][0]} and {sizes[1][1]}"
            )
        return train, test, labels


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


def _read_mulan(train: Path, test: Path, names: Path) -> Parsed:
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
    # In the order of their columns, which is that of the numbers.
    return parts[0], parts[1], tuple(column for column in columns[0] if column in set(labels))


def _read_pair(train: Path, test: Path) -> Parsed:
    return extreme.read(train), extreme.read(test), None


def _read_splits(data: Path, train: Path, test: Path) -> Parsed:
    every = extreme.read(data)
    rows = [extreme.read_rows(path, samples=len(every.labels)) for path in (train, test)]
    both = np.intersect1d(rows[0], rows[1])
    if len(both):
        raise DataError(f"sample {both[0] + 1} of {data} is in {train} and in {test}")
    first, second = (
        LabelledRows(every.features.rows(part), every.labels.rows(part)) for part in rows
    )
    return first, second, None
