"""Arrays of an .npz archive, read without trusting it: no pickles, no bombs, no surprises.

The archive is a zip of .npy files (numpy, "NEP 1: A simple file format for NumPy arrays"); each is
a magic string, a header of text that gives element type, order and shape, and the elements.
"""

import math
import re
import sys
import zipfile
import zlib
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO, Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from search.errors import DataError

MOST_ENTRIES = 64

MOST_DIMENSIONS = 3

LONGEST_NAME = 1000
"""Characters of an array's name, where any is allowed."""

MOST_EXPANSION = 500
"""Unpacked bytes per packed byte. Real numbers stay far below; deflate ends at about 1030."""

ALWAYS_SMALL = 2**24
"""Bytes unpacked up to which an archive may expand as it likes: constant columns do."""

_MAGIC = b"\x93NUMPY"
_LONGEST_HEADER = 10_000
_HEADER = re.compile(
    r"""\{\s*['"]descr['"]:\s*(?P<descr>'[^']*'|"[^"]*"|\[.*\]),\s*"""
    r"""['"]fortran_order['"]:\s*(?P<fortran>True|False),\s*"""
    r"""['"]shape['"]:\s*\((?P<shape>[\d,\s]*)\),?\s*\}\s*""",
    re.DOTALL,
)
_PLAIN_DESCR = re.compile(r"[<>=|]?(?P<kind>[A-Za-z?])\d{0,9}")
_READABLE_KINDS = "?biufSU"


@dataclass(frozen=True)
class _Header:
    dtype: np.dtype[Any]
    fortran_order: bool
    shape: tuple[int, ...]

    @property
    def content_bytes(self) -> int:
        return self.dtype.itemsize * math.prod(self.shape)


def read(
    stream: BinaryIO,
    *,
    allowed: Sequence[str] | None,
    most_bytes: int,
    most_dimensions: int = MOST_DIMENSIONS,
) -> dict[str, NDArray[Any]]:
    """Read the arrays of an archive, by name.

    Numbers, booleans and strings of few dimensions are read; everything else is refused
    by its header, before one of its elements is looked at. What is held never exceeds `most_bytes`.

    Args:
        stream: the archive; it must be seekable.
        allowed: the names that an array may have; None: any that can be shown.
        most_bytes: of all arrays together, unpacked.
        most_dimensions: of an array.

    Raises:
        DataError: The archive is damaged, too large or holds something else.
    """
    with _opened(stream) as archive:
        return {
            name: _array(archive, name, entry, most_dimensions)
            for name, entry in _entries(archive, allowed, most_bytes).items()
        }


def read_shapes(
    stream: BinaryIO,
    *,
    allowed: Sequence[str] | None,
    most_bytes: int,
    most_dimensions: int = MOST_DIMENSIONS,
) -> dict[str, tuple[np.dtype[Any], tuple[int, ...]]]:
    """The element types and shapes that `read` would find, from the headers alone.

    Raises:
        DataError: The archive is damaged, too large or holds something else.
    """
    with _opened(stream) as archive:
        found: dict[str, tuple[np.dtype[Any], tuple[int, ...]]] = {}
        for name, entry in _entries(archive, allowed, most_bytes).items():
            with archive.open(entry) as file:
                header, _ = _header(file, name, most_dimensions)
            found[name] = header.dtype, header.shape
        return found


@contextmanager
def _opened(stream: BinaryIO) -> Generator[zipfile.ZipFile]:
    try:
        with zipfile.ZipFile(stream) as archive:
            yield archive
    except (
        zipfile.BadZipFile,
        zlib.error,
        EOFError,
        NotImplementedError,  # a feature of zip files that Python does not know
        RuntimeError,  # zipfile's word for encryption
        ValueError,  # names and offsets that make no sense
        OverflowError,
        OSError,
    ) as error:
        raise DataError(f"the .npz archive is damaged: {error}") from error


def _entries(
    archive: zipfile.ZipFile, allowed: Sequence[str] | None, most_bytes: int
) -> dict[str, zipfile.ZipInfo]:
    infos = archive.infolist()
    if not infos:
        raise DataError("the .npz archive is empty")
    if len(infos) > MOST_ENTRIES:
        raise DataError(f"the .npz archive holds {len(infos)} files; at most {MOST_ENTRIES}")
    entries: dict[str, zipfile.ZipInfo] = {}
    for info in infos:
        name = info.filename.removesuffix(".npy")
        if name == info.filename or not _is_allowed(name, allowed):
            keys = f"of up to {LONGEST_NAME} letters" if allowed is None else ", ".join(allowed)
            raise DataError(
                f"the .npz archive holds {info.filename[:100]!r}; allowed are the keys {keys}"
            )
        if name in entries:
            raise DataError(f"the .npz archive holds the key {name} twice")
        if info.flag_bits & 0x1:
            raise DataError(f"the array {name} is encrypted")
        if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise DataError(f"the array {name} is packed by another method than store or deflate")
        entries[name] = info
    unpacked = sum(info.file_size for info in infos)
    packed = sum(info.compress_size for info in infos)
    if unpacked > most_bytes:
        raise DataError(f"the arrays take {unpacked} bytes unpacked; at most {most_bytes}")
    if unpacked > max(ALWAYS_SMALL, MOST_EXPANSION * packed):
        raise DataError(
            f"the .npz archive unpacks {packed} bytes to {unpacked}; "
            f"more than {MOST_EXPANSION} times is taken for a zip bomb"
        )
    return entries


def _is_allowed(name: str, allowed: Sequence[str] | None) -> bool:
    if allowed is None:
        return 0 < len(name) <= LONGEST_NAME and name.isprintable()
    return name in allowed


def _array(
    archive: zipfile.ZipFile, name: str, entry: zipfile.ZipInfo, most_dimensions: int
) -> NDArray[Any]:
    with archive.open(entry) as stream:
        header, header_bytes = _header(stream, name, most_dimensions)
        found = entry.file_size - header_bytes
        if found != header.content_bytes:
            raise DataError(
                f"the array {name} has {found} bytes of elements; "
                f"its header announces {header.content_bytes}"
            )
        content = bytearray(found)
        view = memoryview(content)
        # The zip's directory may lie about the size, so that reading stops at what it announced.
        position = 0
        while position < found:
            chunk = stream.read(min(2**20, found - position))
            if not chunk:
                raise DataError(f"the array {name} ends after {position} of {found} bytes")
            view[position : position + len(chunk)] = chunk
            position += len(chunk)
        if stream.read(1):
            raise DataError(f"the array {name} goes on after the {found} bytes it announced")
    array = np.frombuffer(content, dtype=header.dtype)
    if header.dtype.kind == "U":
        points = np.frombuffer(content, dtype=np.dtype("u4").newbyteorder(header.dtype.byteorder))
        if points.max(initial=0) > sys.maxunicode:
            raise DataError(f"the array {name} holds strings that are no Unicode")
    return array.reshape(header.shape, order="F" if header.fortran_order else "C")


def _header(stream: IO[bytes], name: str, most_dimensions: int) -> tuple[_Header, int]:
    start = stream.read(8)
    if start[:6] != _MAGIC or len(start) < 8 or start[6] not in (1, 2, 3):
        raise DataError(f"the array {name} is no .npy file of version 1, 2 or 3")
    size_bytes = 2 if start[6] == 1 else 4
    size = int.from_bytes(stream.read(size_bytes), "little")
    if size > _LONGEST_HEADER:
        raise DataError(f"the array {name} has a header of {size} bytes; at most {_LONGEST_HEADER}")
    # A pattern in place of numpy's evaluation of the text as Python: nothing is run.
    text = stream.read(size).decode("utf-8", errors="replace")
    match = _HEADER.fullmatch(text)
    if match is None or not text.strip().isprintable():
        raise DataError(f"the array {name} has a damaged header: {text[:80].strip()!r}")
    shape = tuple(int(part) for part in match["shape"].replace(",", " ").split())
    if not 1 <= len(shape) <= most_dimensions or 0 in shape:
        raise DataError(
            f"the array {name} has the shape {shape}; 1 to {most_dimensions} dimensions are read, "
            "and none may be 0"
        )
    header = _Header(_dtype(match["descr"], name), match["fortran"] == "True", shape)
    return header, 8 + size_bytes + size


def _dtype(descr: str, name: str) -> np.dtype[Any]:
    plain = _PLAIN_DESCR.fullmatch(descr[1:-1])
    kind = None if plain is None else plain["kind"]
    if kind == "O":
        raise DataError(
            f"the array {name} holds Python objects (pickles), which are not read; "
            "store numbers or strings of one length"
        )
    if kind is None or kind not in _READABLE_KINDS:
        raise DataError(
            f"the array {name} has elements of type {descr[:60]}; "
            "numbers, booleans and strings are read"
        )
    try:
        return np.dtype(descr[1:-1])
    except (TypeError, ValueError) as error:
        raise DataError(f"the array {name} has elements of the unknown type {descr}") from error
