"""The end of a log that is still being written, for readers elsewhere."""

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final, final

MOST_BYTES: Final = 1 << 20
"""How much of a log's end is kept."""
EVERY_SECONDS: Final = 10.0
"""How often a log that grows is reported."""


@dataclass(frozen=True)
class Grown:
    """The end of a log, and how many bytes stand before it."""

    content: bytes
    cut: int


@final
class LogTail:
    """Watches the log of one attempt."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seen = 0
        self._looked_at = time.monotonic()

    def is_due(self) -> bool:
        """Whether it is time to look again."""
        return time.monotonic() - self._looked_at >= EVERY_SECONDS

    def grown(self) -> Grown | None:
        """The log's end, where it has grown since the last look."""
        self._looked_at = time.monotonic()
        try:
            size = self._path.stat().st_size
            if size == self._seen:
                return None
            content, cut = _last_part(self._path, size)
        except OSError:
            # It was not made yet, or was taken away.
            return None
        self._seen = size
        return Grown(content, cut)


def _last_part(path: Path, size: int) -> tuple[bytes, int]:
    """The end of the first `size` bytes of a log, from a line's beginning, and what is before."""
    cut = max(0, size - MOST_BYTES)
    with path.open("rb") as log:
        log.seek(cut)
        content = log.read(size - cut)
    if cut:
        # Half a line, and perhaps half a character, says nothing.
        broken, newline, rest = content.partition(b"\n")
        if newline:
            return rest, cut + len(broken) + 1
    return content, cut
