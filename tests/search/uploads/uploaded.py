"""Uploads for tests of tasks: containers in a folder, as the service and workers give them."""

import hashlib
import io
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from search.errors import DataError
from search.uploads import container
from search.uploads.arrays import array_facts
from search.uploads.container import UNASSIGNED, Decoded
from search.uploads.dataset_metadata import (
    SPLIT_NAMES,
    ArrayFacts,
    DatasetFacts,
    Problem,
    ReadingOptions,
)
from search.uploads.decoding import decode


class FolderShelf:
    """A `DatasetShelf` of files, each named by its upload's id."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)

    def add(self, dataset_id: str, decoded: Decoded) -> str:
        """Keep an upload, in place of the one before; its id."""
        (self._folder / dataset_id).write_bytes(container.to_bytes(decoded))
        return dataset_id

    def remove(self, dataset_id: str) -> None:
        (self._folder / dataset_id).unlink()

    def facts(self, dataset_id: str) -> DatasetFacts:
        return container.read(self._path(dataset_id)).facts

    def arrays(self, dataset_id: str) -> ArrayFacts:
        return array_facts(self._path(dataset_id))

    def digest(self, dataset_id: str) -> str:
        return hashlib.sha256(self._path(dataset_id).read_bytes()).hexdigest()

    @contextmanager
    def open(self, dataset_id: str) -> Generator[BinaryIO]:
        with self._path(dataset_id).open("rb") as stream:
            yield stream

    def _path(self, dataset_id: str) -> Path:
        path = self._folder / dataset_id
        if not path.exists():
            raise DataError(f"there is no data set {dataset_id!r}")
        return path


def upload(
    problem: Problem,
    x: NDArray[Any],
    y: NDArray[Any] | None = None,
    *,
    lengths: NDArray[np.int64] | None = None,
    split: NDArray[np.int8] | None = None,
) -> Decoded:
    """What the reader of a file with these arrays gives; numbers stand for the classes' names."""
    split = np.full(len(x), UNASSIGNED, dtype=np.int8) if split is None else split
    x = x.astype(np.float32)
    if lengths is not None:
        x[np.arange(x.shape[1])[None, :] >= lengths[:, None]] = 0
    outputs = x.shape[2]
    counts: tuple[int, ...] | None = None
    if problem == "classification":
        assert y is not None
        y = y.astype(np.int64)
        counts = tuple(np.bincount(y).tolist())
        outputs = len(counts)
    elif y is not None:
        y = y.astype(np.float32)
        outputs = y.shape[1]
        counts = tuple(y.sum(axis=0).astype(int).tolist()) if problem == "multilabel" else None
    places = {**dict(enumerate(SPLIT_NAMES)), UNASSIGNED: "unassigned"}
    samples = {name: int((split == place).sum()) for place, name in places.items()}
    facts = DatasetFacts(
        problem=problem,
        samples={name: count for name, count in samples.items() if count},
        steps=x.shape[1],
        shortest=x.shape[1] if lengths is None else int(lengths.min()),
        features=x.shape[2],
        outputs=outputs,
        classes=None if counts is None else tuple(map(str, range(outputs))),
        class_counts=counts,
    )
    decoded = Decoded(x=x, y=y, lengths=lengths, split=split, facts=facts)
    container.verify(decoded)
    return decoded


def gestures(*, unequal: bool = False, split: NDArray[np.int8] | None = None) -> Decoded:
    """Ninety noisy waves of three frequencies in two features, 12 steps, far from mean 0."""
    random = np.random.RandomState(0)
    y = np.arange(90) % 3
    time = np.arange(12)
    wave = np.sin(time[None, :] * (0.4 + 0.5 * y[:, None]) + random.rand(90, 1))
    x = np.stack([50 + 3 * wave, -wave], axis=2) + 0.05 * random.randn(90, 12, 2)
    lengths = random.randint(7, 13, size=90).astype(np.int64) if unequal else None
    return upload("classification", x, y, lengths=lengths, split=split)


def readings() -> Decoded:
    """A user's own table: two classes with names to be quoted, numbers near 1e6, some missing."""
    random = np.random.RandomState(4)
    names = ['"Grün, hell"', '"das ""Übrige"""']
    rows: list[str] = []
    for row in range(60):
        values = [f"{1e6 + (row % 2) + value:.2f}" for value in random.randn(10)]
        values[row % 7] = "" if row % 3 == 0 else values[row % 7]
        rows.append(",".join([names[row % 2], *values]))
    return _read("\n".join(rows).encode(), ".csv", ReadingOptions(missing="mean"))


def ragged_readings() -> Decoded:
    """Series of 6 to 10 steps of two features, one near 1e6, with missing values."""
    random = np.random.RandomState(5)
    lengths = 6 + np.arange(60) % 5
    x = random.randn(60, 10, 2) + np.array([1e6, 0.0])
    x[::3, 2, 0] = x[1::4, 5, 1] = np.nan
    x[np.arange(10) >= lengths[:, None]] = 0
    stream = io.BytesIO()
    y = np.array(["still", "in Bewegung"])[np.arange(60) % 2]
    np.savez(stream, x=x.astype(np.float32), y=y, lengths=lengths)
    return _read(stream.getvalue(), ".npz", ReadingOptions(missing="mean"))


def _read(content: bytes, suffix: str, options: ReadingOptions) -> Decoded:
    files = {"file": io.BytesIO(content)}
    return decode(files, suffix=suffix, options=options, most_bytes=1 << 20)


def prices() -> Decoded:
    """Eighty series of 6 steps, with two numbers that are 2000 + 100 sum(x) and -sum(x)."""
    random = np.random.RandomState(1)
    x = random.randn(80, 6, 1)
    total = x.sum(axis=(1, 2))
    return upload("regression", x, np.stack([2000 + 100 * total, -total], axis=1))


def topics() -> Decoded:
    """A hundred vectors of 8 features with 6 labels, each of which is a feature's sign."""
    random = np.random.RandomState(2)
    x = random.randn(100, 1, 8)
    return upload("multilabel", x, x[:, 0, :6] > np.linspace(-0.5, 1, 6))


def tide(*, series: int = 1, steps: int = 600) -> Decoded:
    """Series of two features that go on for ever: sums of sines, and a little noise."""
    random = np.random.RandomState(3)
    time = np.arange(steps)[None, :] + 40 * np.arange(series)[:, None]
    x = np.stack([10 + 4 * np.sin(time / 5), np.cos(time / 9)], axis=2)
    return upload("forecasting", x + 0.01 * random.randn(*x.shape))
