"""Finding and reading the files of the user's data folder, plain or gzipped."""

import gzip
import zlib
from pathlib import Path
from typing import Annotated

from pydantic import StringConstraints

from search.errors import DataError

ArchiveName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_-]+$", max_length=100)]
"""A data set's name: it becomes a part of a path, and can lead nowhere else."""

_GZIP_MAGIC = b"\x1f\x8b"
_BYTE_ORDER_MARK = "\ufeff"


def find(folder: Path | None, name: str, *others: str, task: str) -> Path:
    """Give the first of some files that is there, plain or gzipped.

    Args:
        folder: the user's data folder (`DataSources.folder`).
        name: the file's name, relative to the folder and without `.gz`; the one that is asked for
            when none is there. Like `others`, it must be free of what a user may write unchecked.
        others: other names and places, in the order in which they are looked for.
        task: the task's kind, for the message.

    Raises:
        DataError: None of them is there, or there is no such folder; the message says which file to
            put where.
    """
    wanted = f"{task} needs {name}, plain or gzipped (.gz)"
    if folder is None:
        raise DataError(f"{wanted}, in a data folder; there is none: name it in REFLECTORY_DATA")
    if not folder.is_dir():
        raise DataError(f"{wanted}, but the data folder {folder} does not exist")
    path = locate(folder, name, *others)
    if path is None:
        raise DataError(f"{wanted}; it is not there: put it at {folder / name}")
    return path


def locate(folder: Path, *names: str) -> Path | None:
    """Give the first of some files that is there, plain or gzipped, or None; see `find`."""
    candidates = (folder / f"{name}{ending}" for name in names for ending in ("", ".gz"))
    return next((path for path in candidates if path.is_file()), None)


def content(path: Path) -> bytes:
    """Give a file's bytes; whether it is gzipped shows in its first bytes, not in its name.

    Raises:
        DataError: The file cannot be read, or what gzip made of it is damaged.
    """
    try:
        raw = path.read_bytes()
        return gzip.decompress(raw) if raw.startswith(_GZIP_MAGIC) else raw
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise DataError(f"{path} is damaged; gzip says: {error}") from error
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror or error}") from error


def text(path: Path) -> str:
    """Give a text file's characters (UTF-8), plain or gzipped, without a byte order mark.

    Raises:
        DataError: As `content`, or it is not UTF-8; the message names the byte.
    """
    raw = content(path)
    try:
        # The codec utf-8-sig would count an error's bytes from behind the mark.
        return raw.decode().removeprefix(_BYTE_ORDER_MARK)
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise DataError(
            f"{path}, line {line}: byte {error.start} is {raw[error.start]:#04x}, which is not "
            "UTF-8 text"
        ) from error
