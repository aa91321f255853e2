"""Files that arrived."""

from dataclasses import dataclass
from pathlib import Path

from service.api.fronts.schemas import MissingFile


@dataclass(frozen=True)
class Downloaded:
    """A file that arrived whole: its bytes have the digest that the server named."""

    path: Path
    sha256: str
    size: int


@dataclass(frozen=True)
class DownloadedBundle(Downloaded):
    """A bundle that arrived whole; what it lacks was not there to be sent."""

    missing: tuple[MissingFile, ...] = ()


@dataclass(frozen=True)
class DownloadedFolder:
    """Files that were written into a folder, and those that could not be had."""

    path: Path
    files: tuple[Path, ...]
    missing: tuple[MissingFile, ...]

    def and_also(self, other: "DownloadedFolder") -> "DownloadedFolder":
        """This folder with another's files, which lie below it."""
        return DownloadedFolder(
            self.path, (*self.files, *other.files), (*self.missing, *other.missing)
        )
