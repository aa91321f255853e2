"""The two files of a UCR data set in the user's data folder, decoded once."""

import hashlib
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from search.formats import ucr_text as ucr
from search.formats.files import find
from search.tasks.array_cache import Arrays, cached_arrays
from search.tasks.download import sha256_of

NAMES_OF_2015 = {
    "50words": "FiftyWords",
    "Cricket_X": "CricketX",
    "Gun_Point": "GunPoint",
    "Lighting2": "Lightning2",
}
"""Names of the archive of 2015, which the papers use, and what they became in 2018."""

EXCHANGED = frozenset(
    {
        "DistalPhalanxOutlineCorrect",
        "DistalPhalanxTW",
        "MiddlePhalanxOutlineCorrect",
        "MiddlePhalanxTW",
    }
)
"""Sets whose TRAIN and TEST the archive of 2018 exchanged."""

_FILES = ("TRAIN", "TEST")
_ARRAYS = ("values", "lengths", "labels", "comma_separated")


@dataclass(frozen=True)
class Part:
    """One of the two files: N series of up to L values."""

    file: Path
    sha256: str
    values: NDArray[Any]
    """`[N, L]` float32; 0 behind a series' end."""
    lengths: NDArray[Any]
    """`[N]` int64."""
    labels: NDArray[Any]
    """`[N]` int64, as they stand in the file."""
    comma_separated: bool

    def __len__(self) -> int:
        return len(self.labels)


def read_parts(
    name: str, *, folder: Path | None, cache: Path, split: str, task: str
) -> tuple[Part, Part]:
    """Give what is trained on and what is tested on.

    Args:
        name: the data set's, as in 2018.
        folder: the user's data folder.
        cache: where decoded files are kept.
        split: "2015" or "2018": whose TRAIN and TEST. Comma-separated files are those of 2015, and
            in its order; others are in the order of 2018.
        task: the task's kind, for messages.

    Raises:
        DataError: A file is missing or damaged.
    """
    files = {part: find(folder, *_names(name, part), task=task) for part in _FILES}
    checksums = {part: sha256_of(path) for part, path in files.items()}
    digest = hashlib.sha256("".join(checksums.values()).encode()).hexdigest()[:32]
    arrays = cached_arrays(
        cache / f"ucr-{digest}",
        tuple(f"{part}_{array}" for part in _FILES for array in _ARRAYS),
        lambda: _decode(files),
    )
    train, test = (
        Part(
            files[part],
            checksums[part],
            arrays[f"{part}_values"],
            arrays[f"{part}_lengths"],
            arrays[f"{part}_labels"],
            bool(arrays[f"{part}_comma_separated"]),
        )
        for part in _FILES
    )
    order_of_files = "2015" if train.comma_separated else "2018"
    exchanged = name in EXCHANGED and order_of_files != split
    return (test, train) if exchanged else (train, test)


def papers_depth(length: int) -> int:
    """Steps into which the papers cut a series of a length, in values.

    A step has n_i values, the largest divisor of the length with n_i <= sqrt(length), and there are
    length / n_i steps. Zhang, Lei, Dhillon (ICLR 2018 submission), table of the UCR results: the
    rule as printed gives one step, but the sizes in the table follow this one.
    """
    return length // next(size for size in range(math.isqrt(length), 0, -1) if length % size == 0)


def _names(name: str, part: str) -> list[str]:
    older = [old for old, new in NAMES_OF_2015.items() if new == name]
    return [
        f"{place}{known}/{known}_{part}{ending}"
        for place in ("ucr/", "")
        for known in (name, *older)
        for ending in (".tsv", ".txt", "")
    ]


def _decode(files: dict[str, Path]) -> Arrays:
    arrays: dict[str, NDArray[Any]] = {}
    for part, path in files.items():
        series = ucr.read(path)
        arrays[f"{part}_values"] = series.values
        arrays[f"{part}_lengths"] = series.lengths
        arrays[f"{part}_labels"] = series.labels
        arrays[f"{part}_comma_separated"] = np.array(series.comma_separated)
    return arrays
