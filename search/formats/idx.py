"""The idx format of MNIST: a magic number, sizes, and unsigned bytes, as they are or gzipped."""

import gzip
import math
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from search.errors import DataError

_UNSIGNED_BYTE = 0x08
_GZIP_MAGIC = b"\x1f\x8b"


def read(path: Path, *, dimensions: int) -> NDArray[Any]:
    """Read an idx file of unsigned bytes.

    The file is two zero bytes, the element type (8), the number of dimensions, one big-endian
    32-bit size per dimension, and the elements with the last index running fastest. Whether it is
    gzipped shows in its first bytes, not in its name.

    Args:
        path: the file.
        dimensions: how many dimensions it must have.

    Raises:
        DataError: The file is missing, damaged or of another format; the message names the file,
            what was found and what was expected.
    """
    content = _content(path)
    header_size = 4 + 4 * dimensions
    if len(content) < header_size:
        raise DataError(
            f"{path} holds {len(content)} bytes; its idx header alone has {header_size}"
        )
    expected = bytes((0, 0, _UNSIGNED_BYTE, dimensions))
    if content[:4] != expected:
        raise DataError(
            f"{path} begins with {content[:4].hex(' ')}; expected is {expected.hex(' ')} "
            f"(idx, unsigned bytes, {dimensions} dimension{'s' if dimensions > 1 else ''})"
        )
    shape = struct.unpack(f">{dimensions}I", content[4:header_size])
    found, announced = len(content) - header_size, math.prod(shape)
    if found != announced:
        state = "truncated" if found < announced else "too long"
        sizes = " x ".join(str(size) for size in shape)
        raise DataError(
            f"{path} is {state}: {found} bytes follow the header, "
            f"which announces {sizes} = {announced}"
        )
    return np.frombuffer(content, dtype=np.uint8, offset=header_size).reshape(shape)


def _content(path: Path) -> bytes:
    try:
        raw = path.read_bytes()
        return gzip.decompress(raw) if raw.startswith(_GZIP_MAGIC) else raw
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise DataError(f"{path} is damaged; gzip says: {error}") from error
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror or error}") from error
