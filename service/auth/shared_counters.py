"""Requests counted over a sliding minute, by all API processes of a machine together.

The counters lie in memory that processes share by mapping a file; without a file they are this
process's own. Their number is fixed: who comes from ever other addresses takes no more room, and
pushes out those that count least. The last minute is estimated from the counts of this minute and
the one before, as if the latter's requests had come evenly.
"""

import fcntl
import math
import mmap
import os
import struct
import time
from collections.abc import Generator
from contextlib import contextmanager
from hashlib import blake2b
from pathlib import Path
from typing import Final, NamedTuple, final

_SECONDS: Final = 60.0
_SLOT: Final = struct.Struct("16sQII")
_IN_A_BUCKET: Final = 8
_BUCKETS: Final = 8192
_BUCKET_BYTES: Final = _SLOT.size * _IN_A_BUCKET
_LARGEST_COUNT: Final = 2**32 - 1


class _Count(NamedTuple):
    """What is known of one name, and where it is kept."""

    offset: int
    current: int
    """Requests of this minute of the clock."""
    previous: int
    """Those of the one before."""


@final
class SharedCounters:
    """Counters by name."""

    def __init__(self, file: Path | None = None) -> None:
        """`file` is one that all who count together name; it is made where it is not there."""
        self._descriptor: int | None = None
        size = _BUCKETS * _BUCKET_BYTES
        if file is None:
            self._memory = mmap.mmap(-1, size)
        else:
            self._descriptor = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            # Longer than it is, it grows by zeros: counters of nobody.
            os.ftruncate(self._descriptor, size)
            self._memory = mmap.mmap(self._descriptor, size)

    def hit(self, *name: str, limit: int) -> float | None:
        """Count a request; the seconds to wait where it is one too many in a minute, else null."""
        now = time.time()
        minute, passed = divmod(now, _SECONDS)
        digest = _digest(*name)
        with self._alone():
            count = self._find(digest, int(minute))
            if math.floor(_in_a_minute(count, passed)) < limit:
                current = min(count.current + 1, _LARGEST_COUNT)
                _SLOT.pack_into(
                    self._memory, count.offset, digest, int(minute), current, count.previous
                )
                return None
        left = _SECONDS - passed
        waits = [left % (_SECONDS / count.previous)] if count.previous else []
        return min([*waits, left] if count.current else waits, default=0.0)

    def used(self, *name: str) -> int:
        """How many requests were counted in the last minute."""
        minute, passed = divmod(time.time(), _SECONDS)
        return math.floor(_in_a_minute(self._find(_digest(*name), int(minute)), passed))

    def close(self) -> None:
        """Give the file back."""
        self._memory.close()
        if self._descriptor is not None:
            os.close(self._descriptor)

    def _find(self, digest: bytes, minute: int) -> _Count:
        """The counter of a name; where it has none, the place for it."""
        start = int.from_bytes(digest[:4], "little") % _BUCKETS * _BUCKET_BYTES
        bucket = self._memory[start : start + _BUCKET_BYTES]
        least, place = (math.inf, math.inf), 0
        for number, (name, at, current, previous) in enumerate(_SLOT.iter_unpack(bucket)):
            if name == digest:
                offset = start + number * _SLOT.size
                if at == minute:
                    return _Count(offset, current, previous)
                return _Count(offset, 0, current if at == minute - 1 else 0)
            if (at, current) < least:
                least, place = (at, current), number
        return _Count(start + place * _SLOT.size, 0, 0)

    @contextmanager
    def _alone(self) -> Generator[None]:
        """Let no other process change anything meanwhile; the kernel ends this with a process."""
        if self._descriptor is None:
            yield
            return
        fcntl.lockf(self._descriptor, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.lockf(self._descriptor, fcntl.LOCK_UN)


def _digest(*name: str) -> bytes:
    return blake2b("\0".join(name).encode("utf-8", "surrogatepass"), digest_size=16).digest()


def _in_a_minute(count: _Count, passed: float) -> float:
    return count.previous * (1 - passed / _SECONDS) + count.current
