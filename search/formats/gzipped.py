"""Files that gzip has packed, read as they were, and no further than a limit."""

import gzip
import io
import zlib
from collections.abc import Generator
from contextlib import contextmanager
from typing import BinaryIO, cast

from search.errors import DataError


class _Limited(io.RawIOBase):
    """The beginning of a stream; reading beyond its limit is refused."""

    def __init__(self, stream: gzip.GzipFile, most_bytes: int) -> None:
        self._stream = stream
        self._most = most_bytes
        self._read = 0

    def readable(self) -> bool:
        """It is only read."""
        return True

    def readinto(self, buffer: memoryview, /) -> int:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Fill a buffer, as far as there is something."""
        piece = self._stream.read(len(buffer))
        self._read += len(piece)
        if self._read > self._most:
            raise DataError(f"unpacked, the file has more than {self._most} bytes")
        buffer[: len(piece)] = piece
        return len(piece)


@contextmanager
def unpacked(stream: BinaryIO, most_bytes: int) -> Generator[BinaryIO]:
    """What a gzip file holds, of at most so many bytes.

    Raises:
        DataError: it is no gzip file, is damaged, or holds more.
    """
    try:
        with (
            gzip.GzipFile(fileobj=stream, mode="rb") as packed,
            io.BufferedReader(_Limited(packed, most_bytes)) as text,
        ):
            yield cast("BinaryIO", text)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise DataError(f"the file is no whole gzip file: {error}") from error
