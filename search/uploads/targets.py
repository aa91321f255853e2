"""What a user's targets mean: the problem they pose, and the array that a loss takes."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from search.errors import DataError
from search.uploads import class_labels
from search.uploads.dataset_metadata import Problem
from search.uploads.raw import RawDataset

_ALLOWED_KINDS = "biufSU"


@dataclass(frozen=True)
class ReadTargets:
    """The targets of N samples, as `search.uploads.container.Decoded.y` has them."""

    y: NDArray[np.int64] | NDArray[np.float32] | None
    outputs: int
    classes: tuple[str, ...] | None = None
    class_counts: tuple[int, ...] | None = None


def read(raw: RawDataset, wanted: Problem | None) -> tuple[Problem, ReadTargets]:
    """Read the targets as the problem that is wanted, that the file names, or that they look like.

    Raises:
        DataError: They cannot be read so; the message names the sample where there is one.
    """
    targets = _plain(raw)
    labels = None if targets is None or targets.ndim > 1 else _labels(targets)
    problem = wanted or raw.problem or _likely(targets, labels)
    if (targets is None) != (problem == "forecasting"):
        found = "there are no targets" if targets is None else "there are targets"
        raise DataError(f"problem: {problem!r} does not fit: {found}")
    if targets is None:
        return problem, ReadTargets(None, raw.x.shape[2])
    return problem, _READERS[problem](targets, labels)


_Labels = list[str] | list[int] | list[float]


def _plain(raw: RawDataset) -> NDArray[Any] | None:
    """The targets as an array `[N]` or `[N, K > 1]`; words stay words."""
    if raw.targets is None:
        return None
    if isinstance(raw.targets, tuple):
        return np.array(raw.targets, dtype=np.object_)
    targets = raw.targets
    if targets.dtype.kind not in _ALLOWED_KINDS:
        raise DataError(f"y has elements of type {targets.dtype}; numbers or words are needed")
    if targets.ndim == 2 and targets.shape[1] == 1:
        targets = targets[:, 0]
    if targets.dtype.kind not in "SU":
        return targets
    if targets.ndim > 1:
        raise DataError(f"y holds words and has the shape {targets.shape}; one a sample is read")
    try:
        words = [
            word.decode() if isinstance(word, bytes) else str(word) for word in targets.tolist()
        ]
    except ValueError as error:
        raise DataError(f"y holds words that are no text: {error}") from error
    return np.array(words, dtype=np.object_)


def _labels(targets: NDArray[Any]) -> _Labels:
    # Booleans are the numbers 0 and 1.
    plain = targets.astype(np.int8) if targets.dtype.kind == "b" else targets
    return class_labels.labels_of(plain.tolist())


def _likely(targets: NDArray[Any] | None, labels: _Labels | None) -> Problem:
    if targets is None:
        return "forecasting"
    if labels is None:
        return "multilabel" if _is_binary(targets) else "regression"
    return "regression" if isinstance(labels[0], float) else "classification"


def _is_binary(targets: NDArray[Any]) -> bool:
    return targets.dtype.kind in "biuf" and bool(np.isin(targets, (0, 1)).all())


def _classification(targets: NDArray[Any], labels: _Labels | None) -> ReadTargets:
    if labels is None:
        if not _is_binary(targets) or not (targets.sum(axis=1) == 1).all():
            raise DataError(
                f"y has the shape {targets.shape}; a classification takes one label a sample, or "
                "rows with a single 1"
            )
        labels = class_labels.labels_of(targets.argmax(axis=1).tolist())
    y, names = class_labels.numbered(labels)
    counts = np.bincount(y, minlength=len(names))
    return ReadTargets(y, len(names), names, tuple(counts.tolist()))


def _multilabel(targets: NDArray[Any], labels: _Labels | None) -> ReadTargets:
    table = targets if labels is None else np.array(labels)[:, np.newaxis]
    if not _is_binary(table):
        raise DataError("multilabel targets are rows of 0 and 1, one column a label (in an .npz)")
    y = table.astype(np.float32)
    counts = tuple(int(count) for count in y.sum(axis=0, dtype=np.float64))
    return ReadTargets(y, y.shape[1], tuple(str(label) for label in range(y.shape[1])), counts)


def _regression(targets: NDArray[Any], labels: _Labels | None) -> ReadTargets:
    if labels is not None:
        for index, label in enumerate(labels):
            if isinstance(label, str):
                raise DataError(
                    f"sample {index} (from 0) has the target {label[:60]!r}; a regression needs "
                    "numbers"
                )
        targets = np.array(labels, dtype=np.float64)[:, np.newaxis]
    with np.errstate(over="ignore"):
        y = targets.astype(np.float32)
    unusable = ~np.isfinite(y).all(axis=1)
    if unusable.any():
        index = int(unusable.argmax())
        raise DataError(
            f"sample {index} (from 0) has a target that is missing, infinite or beyond single "
            "precision (3.4e38)"
        )
    if (y == y[0]).all():
        raise DataError(f"all {len(y)} samples have the same target; there is nothing to learn")
    return ReadTargets(y, y.shape[1])


_READERS: Mapping[Problem, Callable[[NDArray[Any], _Labels | None], ReadTargets]] = {
    "classification": _classification,
    "multilabel": _multilabel,
    "regression": _regression,
}
