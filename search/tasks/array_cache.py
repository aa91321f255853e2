"""Decoded arrays on disk, which later trials map into memory instead of decoding them again."""

import logging
import os
import shutil
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from search.errors import DataError

logger = logging.getLogger(__name__)

Arrays = Mapping[str, NDArray[Any]]


def cached_arrays(folder: Path, names: tuple[str, ...], make: Callable[[], Arrays]) -> Arrays:
    """Give the arrays of a folder, which `make` produces the first time.

    The arrays are mapped copy-on-write: processes share the pages, and nobody can change the file.
    The folder appears whole or not at all; of two processes that write it at once, one wins.

    Args:
        folder: names the content: it must differ whenever `make` would give something else.
        names: the arrays' names.
        make: gives the arrays; called when the folder is missing or damaged.

    Raises:
        DataError: The cache cannot be written or read.
    """
    try:
        if folder.exists():
            try:
                return _read(folder, names)
            except (OSError, ValueError) as error:
                logger.warning(
                    "a damaged cache is made again",
                    extra={"folder": str(folder), "reason": str(error)},
                )
                shutil.rmtree(folder)
        _write(folder, make())
        return _read(folder, names)
    except (OSError, ValueError) as error:
        raise DataError(f"the data cache {folder} cannot be used: {error}") from error


def _read(folder: Path, names: tuple[str, ...]) -> Arrays:
    return {
        name: np.load(folder / f"{name}.npy", mmap_mode="c", allow_pickle=False) for name in names
    }


def _write(folder: Path, arrays: Arrays) -> None:
    folder.parent.mkdir(parents=True, exist_ok=True)
    draft = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
    try:
        for name, array in arrays.items():
            with (draft / f"{name}.npy").open("wb") as stream:
                np.save(stream, array, allow_pickle=False)
                stream.flush()
                os.fsync(stream.fileno())
        try:
            draft.rename(folder)
        except OSError:
            # Another process was first, and its arrays are the same.
            if not folder.is_dir():
                raise
    finally:
        shutil.rmtree(draft, ignore_errors=True)
