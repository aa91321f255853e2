"""A user's .npz of arrays: any names, samples first, of the types that networks read."""

from collections.abc import Mapping
from typing import Any, BinaryIO, TypeAlias

import numpy as np
from numpy.typing import NDArray

from search.errors import DataError
from search.formats import zipped_arrays
from search.uploads.dataset_metadata import ArrayFacts, ArrayPort

ARRAY_SUFFIXES = (".npz",)
"""Of the files that can hold arrays, in small letters."""

TYPES = (
    "float16",
    "float32",
    "float64",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "bool",
)
"""Element types of arrays that are taken, as numpy calls them."""

MOST_DIMENSIONS = 8
"""Of an array, the axis of the samples counted."""

Arrays: TypeAlias = Mapping[str, NDArray[Any]]


def read_arrays(stream: BinaryIO, most_bytes: int) -> Arrays:
    """Read an .npz archive; NaN and Inf are taken, for networks may read them.

    Args:
        stream: the archive; it must be seekable.
        most_bytes: of all arrays together, unpacked.

    Returns:
        The arrays by name, in the order of the names, `[samples, ...]` each, in this machine's
        order of bytes.

    Raises:
        DataError: the archive is damaged or unsafe, an array has a type that no network reads, or
            the arrays have different numbers of samples; the message names the array.
    """
    found = zipped_arrays.read(
        stream, allowed=None, most_bytes=most_bytes, most_dimensions=MOST_DIMENSIONS
    )
    arrays = {name: _native(name, found[name]) for name in sorted(found)}
    first, *others = arrays
    for name in others:
        if len(arrays[name]) != len(arrays[first]):
            raise DataError(
                f"the array {first!r} has {len(arrays[first])} samples and {name!r} has "
                f"{len(arrays[name])}; all arrays have one row for each sample"
            )
    return arrays


def facts_of(arrays: Arrays) -> ArrayFacts:
    """What is said of arrays that `read_arrays` gave."""
    return _facts({name: (array.dtype, array.shape) for name, array in arrays.items()})


def read_array_facts(stream: BinaryIO, most_bytes: int) -> ArrayFacts:
    """What is said of the arrays of an archive that was read before; none of them is looked at.

    Raises:
        DataError: the archive is damaged.
    """
    found = zipped_arrays.read_shapes(
        stream, allowed=None, most_bytes=most_bytes, most_dimensions=MOST_DIMENSIONS
    )
    return _facts(found)


def _facts(shapes: Mapping[str, tuple[np.dtype[Any], tuple[int, ...]]]) -> ArrayFacts:
    _, shape = next(iter(shapes.values()))
    return ArrayFacts(
        samples=shape[0],
        arrays=tuple(
            ArrayPort(name=name, type=dtype.name, shape=shape[1:])
            for name, (dtype, shape) in sorted(shapes.items())
        ),
    )


def _native(name: str, array: NDArray[Any]) -> NDArray[Any]:
    if array.dtype.name not in TYPES:
        raise DataError(
            f"the array {name!r} has elements of type {array.dtype.name}; allowed are "
            f"{', '.join(TYPES)}"
        )
    return array.astype(array.dtype.newbyteorder("="), copy=False)
