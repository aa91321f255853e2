"""Where tasks find their files, and how they tell that a download moves on."""

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, Protocol

from search.uploads.dataset_metadata import ArrayFacts, DatasetFacts


class DownloadProgress(Protocol):
    """Called with how far a file is, at its start and end, and a few times a second in between."""

    def __call__(self, file: str, received: int, total: int) -> None:
        """Take note that `received` of `total` bytes are here; a total of 0 is an unknown one."""
        ...


@dataclass(frozen=True)
class Mirror:
    """Another place from which a task's files are fetched, in place of its public one."""

    url: str
    """The files' common address; a file's name is appended to it."""
    checksums: Mapping[str, str] | None = None
    """SHA-256 by file name, for files of the user's own; None: those of the public files."""


class DatasetShelf(Protocol):
    """Users' uploads, read and kept by the service."""

    def facts(self, dataset_id: str) -> DatasetFacts:
        """What an upload holds that can be trained on.

        Raises:
            DataError: there is none of this id, or it holds arrays for a network's inputs.
        """
        ...

    def arrays(self, dataset_id: str) -> ArrayFacts:
        """What an upload of arrays holds.

        Raises:
            DataError: there is none of this id, or it holds samples to train on.
        """
        ...

    def digest(self, dataset_id: str) -> str:
        """SHA-256 of the container, in hexadecimal digits.

        Raises:
            DataError: there is none of this id.
        """
        ...

    def open(self, dataset_id: str) -> AbstractContextManager[BinaryIO]:
        """The container, see `search.uploads.container` and `search.uploads.arrays`.

        Raises:
            DataError: there is none of this id, or it cannot be had.
        """
        ...


@dataclass(frozen=True)
class DataSources:
    """The folders in which tasks look for files and keep what they fetched and decoded."""

    cache: Path
    """Written by us: downloads, and decoded arrays that trials map into memory."""
    folder: Path | None = None
    """The user's own files; never written to."""
    mirrors: Mapping[str, Mirror] = field(default_factory=dict[str, Mirror])
    """By task kind."""
    datasets: DatasetShelf | None = None
    """None where there are no uploads."""
