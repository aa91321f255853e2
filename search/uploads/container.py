"""A dataset as it is kept once it was read: an uncompressed .npz of arrays of known types.

The arrays are `x`, `split`, and, where there are such, `y`, `lengths` and `missing`; `about` holds
the facts and the preview as JSON. The same dataset gives the same bytes, so that its SHA-256 names
it.
"""

import io
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray
from pydantic import ValidationError

from models.spec import Spec
from search.errors import DataError
from search.formats import zipped_arrays
from search.uploads.arrays import refuse_arrays
from search.uploads.dataset_metadata import SPLIT_NAMES, DatasetFacts, Problem, SamplePreview

UNASSIGNED = -1
"""The split of a sample that is in none yet."""

LARGEST = 2**36
"""Bytes of the largest container that is read."""

_ARRAYS = ("x", "y", "lengths", "missing", "split", "about")
_EPOCH = (1980, 1, 1, 0, 0, 0)


@dataclass(frozen=True)
class Decoded:
    """A dataset of N samples of at most T steps of F features."""

    x: NDArray[np.float32]
    """`[N, T, F]`, finite; 0 behind a sample's own length. Forecasting: N long series."""
    y: NDArray[np.int64] | NDArray[np.float32] | None
    """Classes `[N]` int64, numbers `[N, K]` float32, labels `[N, L]` float32 of 0 and 1.

    None for forecasting, whose targets are the series themselves.
    """
    lengths: NDArray[np.int64] | None
    """`[N]`, from 1 to T: steps of each sample; None where all have T."""
    split: NDArray[np.int8]
    """`[N]`: an index into `SPLIT_NAMES`, or `UNASSIGNED`."""
    facts: DatasetFacts
    preview: tuple[SamplePreview, ...] = ()
    """The beginning of the first few samples."""
    missing: NDArray[np.int64] | None = None
    """Places in the flat x, ascending, of values that were missing and were replaced."""

    def as_sent(self) -> NDArray[np.float32]:
        """X with NaN for what was missing."""
        if self.missing is None:
            return self.x
        x = self.x.copy()
        x.reshape(-1)[self.missing] = np.nan
        return x


class _About(Spec):
    facts: DatasetFacts
    preview: tuple[SamplePreview, ...]


def write(stream: BinaryIO, decoded: Decoded) -> None:
    """Write a dataset; the same one always gives the same bytes."""
    about = _About(facts=decoded.facts, preview=decoded.preview).model_dump_json().encode()
    arrays: dict[str, NDArray[Any] | None] = {
        "x": decoded.x,
        "y": decoded.y,
        "lengths": decoded.lengths,
        "missing": decoded.missing,
        "split": decoded.split,
        "about": np.frombuffer(about, dtype=np.uint8),
    }
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_STORED) as archive:
        for name, array in arrays.items():
            if array is None:
                continue
            # A zip entry carries a time; a fixed one keeps the bytes a function of the content.
            entry = zipfile.ZipInfo(f"{name}.npy", _EPOCH)
            with archive.open(entry, "w", force_zip64=True) as file:
                np.lib.format.write_array(file, np.ascontiguousarray(array), allow_pickle=False)


def to_bytes(decoded: Decoded) -> bytes:
    """The container of a dataset, in memory."""
    stream = io.BytesIO()
    write(stream, decoded)
    return stream.getvalue()


def read(source: BinaryIO | Path) -> Decoded:
    """Read a dataset back.

    Args:
        source: a path, or a seekable stream.

    Raises:
        DataError: It is damaged, no container of ours, or holds arrays for a network's inputs.
    """
    if isinstance(source, Path):
        try:
            with source.open("rb") as stream:
                return read(stream)
        except OSError as error:
            raise DataError(f"{source} cannot be read: {error.strerror or error}") from error
    refuse_arrays(source)
    arrays = zipped_arrays.read(source, allowed=_ARRAYS, most_bytes=LARGEST)
    for name in ("x", "split", "about"):
        if name not in arrays:
            raise DataError(f"the dataset's container lacks the array {name}")
    try:
        about = _About.model_validate_json(arrays["about"].tobytes())
    except ValidationError as error:
        raise DataError(f"the dataset's container describes itself wrongly: {error}") from error
    decoded = Decoded(
        x=arrays["x"],
        y=arrays.get("y"),
        lengths=arrays.get("lengths"),
        split=arrays["split"],
        facts=about.facts,
        preview=about.preview,
        missing=arrays.get("missing"),
    )
    verify(decoded)
    return decoded


def verify(decoded: Decoded) -> None:
    """Compare the arrays' types and shapes with each other and with the facts.

    Raises:
        DataError: They contradict each other.
    """
    facts, count = decoded.facts, len(decoded.x)
    _expect("x", decoded.x, "float32", (sum(facts.samples.values()), facts.steps, facts.features))
    _expect("split", decoded.split, "int8", (count,))
    if not np.isin(decoded.split, (UNASSIGNED, *range(len(SPLIT_NAMES)))).all():
        raise DataError("the dataset's container names a split that there is not")
    if decoded.lengths is not None:
        _expect("lengths", decoded.lengths, "int64", (count,))
        if decoded.lengths.min() < 1 or decoded.lengths.max() > facts.steps:
            raise DataError(
                f"the dataset's container gives lengths outside of 1 to {facts.steps} steps"
            )
    _expect_targets(decoded.y, facts, count)
    _expect_missing(decoded)


_TARGET_TYPES: dict[Problem, str] = {
    "classification": "int64",
    "regression": "float32",
    "multilabel": "float32",
}


def _expect_targets(y: NDArray[Any] | None, facts: DatasetFacts, count: int) -> None:
    dtype = _TARGET_TYPES.get(facts.problem)
    if dtype is None or y is None:
        if dtype is not None or y is not None:
            raise DataError(f"the dataset's container is wrong about its targets: {facts.problem}")
        return
    classes = facts.problem == "classification"
    _expect("y", y, dtype, (count,) if classes else (count, facts.outputs))
    if classes and (y.min() < 0 or y.max() >= facts.outputs):
        raise DataError(f"the dataset's container has classes outside of 0 to {facts.outputs - 1}")


def _expect_missing(decoded: Decoded) -> None:
    replacements = decoded.facts.replacements
    if replacements is not None and len(replacements) != decoded.facts.features:
        raise DataError(
            f"the dataset's container has {len(replacements)} replacements for missing values of "
            f"{decoded.facts.features} features"
        )
    if decoded.missing is None:
        return
    places = decoded.missing
    _expect("missing", places, "int64", (decoded.facts.missing_values,))
    if (
        (places[:1] < 0).any()
        or (places[-1:] >= decoded.x.size).any()
        or (np.diff(places) < 1).any()
    ):
        raise DataError("the dataset's container gives places of missing values that there are not")


def _expect(name: str, array: NDArray[Any], dtype: str, shape: tuple[int, ...]) -> None:
    if array.dtype != np.dtype(dtype) or array.shape != shape:
        raise DataError(
            f"the dataset's container has {name} of type {array.dtype} and shape {array.shape}; "
            f"expected are {dtype} and {shape}"
        )
