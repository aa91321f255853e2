"""The server's files are for its own user alone: by umask when made, and tightened at each start.

A folder that only its owner enters keeps others from all that is below it. So only folders that
were open to others are walked, and a start over a large store costs nothing after the first.
"""

import logging
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from service.settings import Settings
from storage.blobs.places import FolderPlace

_log = logging.getLogger(__name__)

PRIVATE = 0o077
"""The umask of all that writes where a server keeps its files."""

_FOLDERS = ("cache", "lanes", "logs", "uploads")
_FILES = (
    "*.db",
    "*.db-*",
    "*.lock",
    "coordinator.alive",
    "secret",
    "server.json",
    "worker.id",
)
"""What is the server's in its data directory, where users may have put files of their own."""


@dataclass
class _Walk:
    """A walk over folders, and what it came to."""

    spared: Path | None
    """Never touched: the user's own data sets."""
    tightened: int = 0
    refused: int = 0

    def tree(self, folder: Path) -> None:
        """Tighten a folder and, where it was open to others, what is in it."""
        # The folder first: nobody can then exchange for links what is about to be changed.
        if folder == self.spared or not self.entry(folder):
            return
        for entry in _entries(folder):
            if entry.is_dir(follow_symlinks=False):
                self.tree(Path(entry.path))
            else:
                self.entry(Path(entry.path))

    def entry(self, path: Path) -> bool:
        """Tighten a file or a folder; whether it was open to others. Links stay what they are."""
        try:
            found = path.lstat()
            ours = stat.S_ISDIR(found.st_mode) or stat.S_ISREG(found.st_mode)
            if not ours or not found.st_mode & PRIVATE:
                return False
            if found.st_uid == os.geteuid():
                path.chmod(stat.S_IMODE(found.st_mode) & ~PRIVATE)
                self.tightened += 1
        except FileNotFoundError:
            return False
        except OSError:
            self.refused += 1
        return True


def tighten(settings: Settings) -> int:
    """Take from others what they may do with a server's files; how many files and folders that was.

    To be called before the database is opened. Files that belong to other users are left to them.
    """
    data_dir = settings.data_dir.resolve()
    walk = _Walk(spared=None if settings.data_sets is None else settings.data_sets.resolve())
    walk.entry(data_dir)
    for pattern in _FILES:
        for file in data_dir.glob(pattern):
            walk.entry(file)
    for name in _FOLDERS:
        walk.tree(data_dir / name)
    place = settings.artifacts_place
    if isinstance(place, FolderPlace):
        walk.tree(place.path)
    if walk.tightened:
        _log.warning(
            "files and folders were open to other users of this machine, and are not any more",
            extra={"tightened": walk.tightened, "data_dir": str(data_dir)},
        )
    if walk.refused:
        _log.error(
            "files and folders stay open to other users of this machine: their modes are fixed",
            extra={"refused": walk.refused, "data_dir": str(data_dir)},
        )
    return walk.tightened


def _entries(folder: Path) -> Iterator["os.DirEntry[str]"]:
    with os.scandir(folder) as entries:
        yield from entries
