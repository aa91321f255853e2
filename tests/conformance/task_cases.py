"""Every task in every form that its samples can take, over small files and uploads.

For a new task: a function that gives its documents and, where it reads files, writes them; and the
function's name in `CASES`.
"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from search.tasks import (
    Addition,
    Copy,
    CopyTail,
    CopyVariableLag,
    CopyVariableLength,
    Dataset,
    DataSources,
    Digits,
    Language,
    Mnist,
    Multilabel,
    Task,
    Ucr,
)
from tests.search.mnist_files import write_mnist
from tests.search.uploads.uploaded import (
    FolderShelf,
    gestures,
    prices,
    ragged_readings,
    readings,
    tide,
    topics,
)

Documents = Mapping[str, Task]
"""Unresolved tasks, by a name that says what is different about them."""

_FEW: dict[str, Any] = {"train_samples": 40, "validation_samples": 20, "test_samples": 20}


def addition(_data: Path, _shelf: FolderShelf) -> Documents:
    """Sums of two marked numbers."""
    return {
        "addition": Addition(steps=12, **_FEW),
        "addition-shifted": Addition(steps=12, test_markers="anywhere", fresh=True, **_FEW),
    }


def num_matrices(_data: Path, _shelf: FolderShelf) -> Documents:
    """The four tasks of recall."""
    return {
        "copy": Copy(lag=5, **_FEW),
        "copy_variable_length": CopyVariableLength(lag=15, **_FEW),
        "copy_variable_lag": CopyVariableLag(lag=15, **_FEW),
        "copy_tail": CopyTail(steps=30, **_FEW),
    }


def digits(_data: Path, _shelf: FolderShelf) -> Documents:
    """Images of 8x8 pixels."""
    return {
        "digits-rows": Digits(layout="rows"),
        "digits-pixels": Digits(layout="pixels", train_samples=64),
    }


def mnist(data: Path, _shelf: FolderShelf) -> Documents:
    """Images of 28x28 pixels."""
    write_mnist(data)
    few: dict[str, Any] = {"train_samples": 64}
    return {
        "mnist-rows": Mnist(layout="rows"),
        "mnist-pixels": Mnist(layout="pixels", **few),
        "mnist-392x2": Mnist(layout="392x2", **few),
        "mnist-112x7": Mnist(layout="112x7", **few),
        "mnist-permuted": Mnist(layout="permuted", **few),
    }


def ucr(data: Path, _shelf: FolderShelf) -> Documents:
    """Series of the archive."""
    random = np.random.RandomState(5)
    for name, unequal in (("Equal", False), ("Unequal", True)):
        folder = data / "ucr" / name
        folder.mkdir(parents=True)
        for part, count in (("TRAIN", 40), ("TEST", 20)):
            lines: list[str] = []
            for row in range(count):
                values = [f"{value:.5f}" for value in random.randn(12)]
                kept = 12 - row % 4 if unequal else 12
                values[kept:] = ["NaN"] * (12 - kept)
                lines.append("\t".join([str(row % 3 + 1), *values]))
            (folder / f"{name}_{part}.tsv").write_text("\n".join(lines) + "\n")
    return {
        "ucr": Ucr(name="Equal"),
        "ucr-depth": Ucr(name="Equal", depth=2, legacy_labels=True),
        "ucr-unequal": Ucr(name="Unequal", unequal_lengths="pad"),
    }


def multilabel(data: Path, _shelf: FolderShelf) -> Documents:
    """Flat vectors with several labels each."""
    random = np.random.RandomState(6)
    folder = data / "multilabel" / "topics"
    folder.mkdir(parents=True)
    for part, count in (("train", 40), ("test", 20)):
        lines = [f"{count} 6 4"]
        for _ in range(count):
            labels = ",".join(map(str, np.flatnonzero(random.rand(4) < 0.4)))
            lines.append(labels + "".join(f" {i}:{v:.5f}" for i, v in enumerate(random.randn(6))))
        (folder / f"topics_{part}.txt").write_text("\n".join(lines) + "\n")
    return {
        "multilabel": Multilabel(name="topics"),
        "multilabel-steps": Multilabel(name="topics", steps=3),
    }


def language(data: Path, _shelf: FolderShelf) -> Documents:
    """A text, read in each way that there is."""
    words = np.random.RandomState(7).choice(["one", "two", "three", "four"], size=(120, 5))
    text = "".join(" ".join(line[: 2 + row % 4]) + "\n" for row, line in enumerate(words))
    (data / "verse.txt").write_text(text)
    common: dict[str, Any] = {"corpus": "file", "file": "verse.txt"}
    return {
        "language-characters": Language(**common, window=20),
        "language-words": Language(**common, level="word", window=10),
        "language-sentences": Language(**common, batching="sentences"),
        "language-embedded": Language(**common, batching="sentences", embedding=4),
    }


def dataset(_data: Path, shelf: FolderShelf) -> Documents:
    """Uploads of each problem."""
    named = (np.arange(90) // 30).astype(np.int8)
    return {
        "dataset-classification": Dataset(id=shelf.add("classes", gestures())),
        "dataset-named-splits": Dataset(id=shelf.add("named", gestures(split=named))),
        "dataset-missing": Dataset(id=shelf.add("readings", readings())),
        "dataset-missing-unequal": Dataset(id=shelf.add("ragged", ragged_readings())),
        "dataset-unequal": Dataset(id=shelf.add("unequal", gestures(unequal=True))),
        "dataset-regression": Dataset(id=shelf.add("prices", prices())),
        "dataset-as-it-is": Dataset(id=shelf.add("prices", prices()), normalise=False),
        "dataset-multilabel": Dataset(id=shelf.add("topics", topics())),
        "dataset-forecasting": Dataset(id=shelf.add("tide", tide(series=2)), window=16),
    }


CASES: tuple[Callable[[Path, FolderShelf], Documents], ...] = (
    addition,
    num_matrices,
    digits,
    mnist,
    ucr,
    multilabel,
    language,
    dataset,
)


def write_all(root: Path) -> tuple[Documents, DataSources]:
    """Every document, and the sources in which their data are."""
    shelf, data = FolderShelf(root / "shelf"), root / "data"
    data.mkdir()
    documents = {name: task for case in CASES for name, task in case(data, shelf).items()}
    return documents, DataSources(cache=root / "cache", folder=data, datasets=shelf)
