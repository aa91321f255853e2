"""Files on their way to the server: opened for one try, and read with progress."""

import io
import os
from collections.abc import Generator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

from service.client.downloads import ToldProgress

READING_SECONDS = 900.0
"""How long an answer may take: an upload is answered when it was read, which may wait for others
that are read before it."""


@contextmanager
def form_files(
    paths: Mapping[str, Path], told: ToldProgress
) -> Generator[dict[str, tuple[str, io.FileIO]]]:
    """The form's files, opened from their beginnings.

    Args:
        paths: the files by the names of their parts in the form.
        told: called with the bytes that were read and that there are, all files together.

    Raises:
        OSError: a file cannot be read.
    """
    counter = _Counter(told)
    with ExitStack() as opened:
        yield {
            part: (_name_of(path), opened.enter_context(_CountedFile(path, counter)))
            for part, path in paths.items()
        }


class _Counter:
    """How much of all the files together has gone."""

    def __init__(self, told: ToldProgress) -> None:
        self.total = 0
        self._sent = 0
        self._told = told

    def count(self, size: int) -> None:
        self._sent += size
        self._told(self._sent, self.total)


class _CountedFile(io.FileIO):
    def __init__(self, path: Path, counter: _Counter) -> None:
        super().__init__(path, "rb")
        self._counter = counter
        counter.total += os.fstat(self.fileno()).st_size

    def read(self, size: int | None = -1, /) -> bytes:
        piece = super().read(-1 if size is None else size)
        self._counter.count(len(piece))
        return piece


def _name_of(path: Path) -> str:
    # A file system may hold names that are no UTF-8, which a form cannot say.
    return os.fsencode(path.name).decode("utf-8", "replace")
