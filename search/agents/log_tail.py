"""The end of a log that is still being written, for whoever reads it elsewhere."""

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final, final

from search.agents.log_sender import last_part

EVERY_SECONDS: Final = 10.0
"""How often a log that grows is told of."""


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
            content, cut = last_part(self._path, size)
        except OSError:
            # It was not made yet, or was taken away.
            return None
        self._seen = size
        return Grown(content, cut)
