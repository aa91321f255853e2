"""Arrays of numpy: `x` and `y`, or parts by split.

Keys are `x`, `y`, and, if wished, `split` (names or numbers of `SPLIT_NAMES`) and `lengths`
(steps of each sample); or `x_train`, `y_train`, `x_validation`, `y_validation`, `x_test`, `y_test`,
of which the validation part may be left out. x is `[N, T, F]`, or `[N, T]` for one feature; without
targets it is one long series `[T, F]` or `[T]`, or several `[N, T, F]`, for forecasting.
"""

from collections.abc import Mapping
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from search.errors import DataError
from search.formats import zipped_arrays
from search.uploads.dataset_metadata import SPLIT_NAMES, ReadingOptions
from search.uploads.raw import Columns, RawDataset, check_size, joined, unassigned

_WHOLE_KEYS = ("x", "y", "split", "lengths")
_PART_KEYS = tuple(f"{name}_{split}" for split in SPLIT_NAMES for name in ("x", "y"))

Arrays = Mapping[str, NDArray[Any]]


def read(
    stream: BinaryIO, options: ReadingOptions, most_bytes: int, _columns: Columns | None = None
) -> RawDataset:
    """Read an .npz archive.

    Raises:
        DataError: The archive is damaged, unsafe, or its arrays do not fit each other; the message
            names the key.
    """
    arrays = zipped_arrays.read(stream, allowed=_WHOLE_KEYS + _PART_KEYS, most_bytes=most_bytes)
    whole = [key for key in arrays if key in _WHOLE_KEYS]
    parts = [key for key in arrays if key in _PART_KEYS]
    if whole and parts:
        raise DataError(f"the keys {whole[0]} and {parts[0]} do not go together: whole or by split")
    if whole:
        return _whole(arrays, options, most_bytes)
    return _by_split(arrays, options, most_bytes)


def _whole(arrays: Arrays, options: ReadingOptions, most_bytes: int) -> RawDataset:
    raw = _samples(arrays, "x", "y", options, most_bytes)
    lengths, split = raw.lengths, raw.split
    if "lengths" in arrays:
        lengths = _lengths(arrays["lengths"], raw.x.shape)
    if "split" in arrays:
        split = _split(arrays["split"], len(raw.x))
    # What stands behind a sample's length is padding, whatever its author filled it with.
    steps = np.arange(raw.x.shape[1], dtype=np.int64)
    raw.x[steps >= lengths[:, np.newaxis]] = 0
    _refuse_infinite(raw.x, "x")
    return RawDataset(
        raw.x, lengths, raw.targets, split, raw.problem, lengths_given="lengths" in arrays
    )


def _by_split(arrays: Arrays, options: ReadingOptions, most_bytes: int) -> RawDataset:
    for split in ("train", "test"):
        if f"x_{split}" not in arrays:
            raise DataError(f"the key x_{split} is missing; parts by split need it")
    parts: list[RawDataset] = []
    for number, split in enumerate(SPLIT_NAMES):
        x_key, y_key = f"x_{split}", f"y_{split}"
        if x_key in arrays:
            part = _samples(arrays, x_key, y_key, options, most_bytes)
            _refuse_infinite(part.x, x_key)
            marked = np.full(len(part.x), number, dtype=np.int8)
            parts.append(RawDataset(part.x, part.lengths, part.targets, marked, part.problem))
        elif y_key in arrays:
            raise DataError(f"the key {y_key} is there and {x_key} is not")
    return joined(parts, most_bytes)


def _samples(
    arrays: Arrays, x_key: str, y_key: str, options: ReadingOptions, most_bytes: int
) -> RawDataset:
    if x_key not in arrays:
        raise DataError(f"the key {x_key} is missing")
    x, y = arrays[x_key], arrays.get(y_key)
    if options.problem == "forecasting" and y is not None:
        raise DataError(f"the key {y_key} is not used by forecasting; leave it out")
    if options.problem not in (None, "forecasting") and y is None:
        raise DataError(f"the key {y_key} is missing; {options.problem} needs targets")
    if y is None:
        # One long series, whose axes are steps and features.
        x = x[np.newaxis] if x.ndim < 3 else x
    x = x[..., np.newaxis] if x.ndim == 2 else x
    if x.ndim != 3:
        raise DataError(
            f"{x_key} has the shape {arrays[x_key].shape}; with targets it is [samples, steps] or "
            "[samples, steps, features]"
        )
    if y is not None and len(y) != len(x):
        raise DataError(f"{x_key} has {len(x)} samples and {y_key} has {len(y)}")
    if y is not None and y.ndim > 2:
        raise DataError(f"{y_key} has the shape {y.shape}; it is [samples] or [samples, numbers]")
    check_size(x.shape, most_bytes)
    lengths = np.full(len(x), x.shape[1], dtype=np.int64)
    problem = "forecasting" if y is None else None
    return RawDataset(_single(x, x_key), lengths, y, unassigned(len(x)), problem)


def _single(x: NDArray[Any], key: str) -> NDArray[np.float32]:
    if x.dtype.kind not in "biuf":
        raise DataError(f"{key} has elements of type {x.dtype}; numbers are needed")
    with np.errstate(over="ignore"):
        return np.array(x, dtype=np.float32, order="C")


def _refuse_infinite(x: NDArray[np.float32], key: str) -> None:
    infinite = np.isinf(x)
    if infinite.any():
        place = np.unravel_index(int(infinite.argmax()), x.shape)
        raise DataError(
            f"{key}: sample {place[0]}, step {place[1]}, feature {place[2]} (from 0) is infinite, "
            "or beyond single precision (3.4e38)"
        )


def _lengths(lengths: NDArray[Any], shape: tuple[int, ...]) -> NDArray[np.int64]:
    if lengths.dtype.kind not in "iu" or lengths.shape != shape[:1]:
        raise DataError(
            f"lengths has type {lengths.dtype} and shape {lengths.shape}; "
            f"expected are whole numbers [{shape[0]}]"
        )
    outside = (lengths < 1) | (lengths > shape[1])
    if outside.any():
        index = int(outside.argmax())
        raise DataError(
            f"lengths: {lengths[index]} of sample {index} (from 0) is outside of 1 to {shape[1]}"
        )
    return lengths.astype(np.int64)


def _split(split: NDArray[Any], count: int) -> NDArray[np.int8]:
    if split.shape != (count,) or split.dtype.kind not in "iuSU":
        raise DataError(
            f"split has type {split.dtype} and shape {split.shape}; expected are names or whole "
            f"numbers [{count}]"
        )
    numbers = np.full(count, -1, dtype=np.int8)
    for number, name in enumerate(SPLIT_NAMES):
        meant: Any = {"S": name.encode(), "U": name}.get(split.dtype.kind, number)
        numbers[split == meant] = number
    unknown = numbers < 0
    if unknown.any():
        index = int(unknown.argmax())
        allowed = ", ".join(f"{name} or {number}" for number, name in enumerate(SPLIT_NAMES))
        value = repr(split.tolist()[index])[:40]
        raise DataError(f"split: {value} of sample {index} (from 0); allowed are {allowed}")
    return numbers
