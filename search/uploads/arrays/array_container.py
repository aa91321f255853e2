"""Arrays as they are kept once they were read: an uncompressed .npz of them under their names.

The same arrays give the same bytes. Arrays may have any names, so that a mark in the archive's
comment tells such a container from one of samples, see `search.uploads.container`.
"""

import zipfile
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import BinaryIO

import numpy as np

from search.errors import DataError
from search.uploads.arrays.array_files import Arrays, read_array_facts, read_arrays
from search.uploads.dataset_metadata import ArrayFacts

LARGEST = 2**36
"""Bytes of the largest container that is read."""

NO_SAMPLES = (
    'the data set holds arrays for a network\'s inputs, which a task "model_outputs" reads; to be '
    'trained on it has to be uploaded with holds: "samples"'
)
"""What is said where a task wants samples."""

NO_ARRAYS = (
    "the data set holds samples to train on; for a network's inputs it has to be uploaded with "
    'holds: "arrays"'
)
"""What is said where a network wants arrays."""

_MARK = b"reflectory: arrays"
_EPOCH = (1980, 1, 1, 0, 0, 0)


def write_arrays(stream: BinaryIO, arrays: Arrays) -> None:
    """Write arrays; the same ones always give the same bytes."""
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_STORED) as archive:
        archive.comment = _MARK
        for name in sorted(arrays):
            # A zip entry carries a time; a fixed one keeps the bytes a function of the content.
            entry = zipfile.ZipInfo(f"{name}.npy", _EPOCH)
            with archive.open(entry, "w", force_zip64=True) as file:
                array = np.ascontiguousarray(arrays[name])
                np.lib.format.write_array(file, array, allow_pickle=False)


def holds_arrays(stream: BinaryIO) -> bool:
    """Whether a container holds arrays; the stream is left at its beginning."""
    stream.seek(0)
    try:
        with zipfile.ZipFile(stream) as archive:
            return archive.comment == _MARK
    except (zipfile.BadZipFile, ValueError, OSError):
        return False
    finally:
        stream.seek(0)


def refuse_arrays(stream: BinaryIO) -> None:
    """Hold that a container has samples to train on.

    Raises:
        DataError: it holds arrays.
    """
    if holds_arrays(stream):
        raise DataError(NO_SAMPLES)


def stored_arrays(source: BinaryIO | Path) -> Arrays:
    """The arrays of a container by name, `[samples, ...]` each.

    Args:
        source: a path, or a seekable stream.

    Raises:
        DataError: it is damaged, or holds samples to train on.
    """
    with _container(source) as stream:
        return read_arrays(stream, LARGEST)


def array_facts(source: BinaryIO | Path) -> ArrayFacts:
    """What a container of arrays holds; its arrays are not read.

    Args:
        source: a path, or a seekable stream.

    Raises:
        DataError: it is damaged, or holds samples to train on.
    """
    with _container(source) as stream:
        return read_array_facts(stream, LARGEST)


@contextmanager
def _container(source: BinaryIO | Path) -> Generator[BinaryIO]:
    with ExitStack() as opened:
        if isinstance(source, Path):
            try:
                source = opened.enter_context(source.open("rb"))
            except OSError as error:
                raise DataError(f"{source} cannot be read: {error.strerror or error}") from error
        if not holds_arrays(source):
            raise DataError(NO_ARRAYS)
        yield source
