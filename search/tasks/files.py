"""Finding and reading the files of the user's data folder, plain or gzipped."""

import gzip
import zlib
from pathlib import Path

from search.errors import DataError

_GZIP_MAGIC = b"\x1f\x8b"


def find(folder: Path | None, *names: str, task: str) -> Path:
    """Give the first of some files that is there, plain or gzipped.

    Args:
        folder: the user's data folder (`DataSources.folder`).
        names: the file's possible names, relative to the folder and without `.gz`; the first is the
            one that is asked for when none is there. None may come from a user unchecked.
        task: the task's kind, for the message.

    Raises:
        DataError: None of them is there, or there is no such folder; the message says which file to
            put where.
    """
    wanted = f"{task} needs {names[0]}, plain or gzipped (.gz)"
    if folder is None:
        raise DataError(f"{wanted}, in a data folder; there is none: name it in REFLECTORY_DATA")
    if not folder.is_dir():
        raise DataError(f"{wanted}, but the data folder {folder} does not exist")
    for name in names:
        for path in (folder / name, folder / f"{name}.gz"):
            if path.is_file():
                return path
    others = f" (or as {', '.join(names[1:])})" if len(names) > 1 else ""
    raise DataError(f"{wanted}; it is not there: put it at {folder / names[0]}{others}")


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
    """Give a text file's characters (UTF-8), plain or gzipped.

    Raises:
        DataError: As `content`, or it is not UTF-8; the message names the byte.
    """
    raw = content(path)
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise DataError(
            f"{path}, line {line}: byte {error.start} is {raw[error.start]:#04x}, which is not "
            "UTF-8 text"
        ) from error
