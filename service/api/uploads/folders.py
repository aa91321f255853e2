"""Folders in which uploads lie until they are stored; what a killed server left goes at a start."""

import fcntl
import os
import shutil
import tempfile
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

_PLANNED = "planned"


class UploadFolders:
    """One folder per request, locked by the kernel for as long as its request lives.

    A folder may say which artifacts its request is about to store or to remove, so that they are
    looked at again where the request never came to its end.
    """

    def __init__(self, root: Path) -> None:
        """Keep the folders below `root`, which is made when the first one is."""
        self._root = root

    @contextmanager
    def open(self) -> Generator[Path]:
        """A new folder; it goes with all that is in it when the block ends."""
        self._root.mkdir(parents=True, exist_ok=True, mode=0o700)
        folder, descriptor = self._locked()
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)
            os.close(descriptor)

    def plan(self, folder: Path, digests: Sequence[str]) -> None:
        """Note, before it happens, which artifacts are stored or removed."""
        with (folder / _PLANNED).open("w", encoding="ascii") as file:
            file.write("\n".join(digests))
            file.flush()
            os.fsync(file.fileno())

    def abandoned(self) -> Generator[list[str]]:
        """The artifacts that each folder of a dead request speaks of; it goes when asked on."""
        if not self._root.exists():
            return
        for folder in self._root.iterdir():
            with suppress(BlockingIOError, FileNotFoundError, NotADirectoryError):
                descriptor = _lock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
                try:
                    planned = folder / _PLANNED
                    yield planned.read_text(encoding="ascii").split() if planned.exists() else []
                    shutil.rmtree(folder, ignore_errors=True)
                finally:
                    os.close(descriptor)

    def _locked(self) -> tuple[Path, int]:
        while True:
            folder = Path(tempfile.mkdtemp(dir=self._root))
            with suppress(FileNotFoundError):
                descriptor = _lock(folder, fcntl.LOCK_EX)
                # Between its making and its locking, a process that starts may have swept it away.
                if folder.exists():
                    return folder, descriptor
                os.close(descriptor)


def _lock(folder: Path, operation: int) -> int:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, operation)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor
