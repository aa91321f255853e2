"""Users' uploads on a worker's machine: fetched from the service, once for all its attempts."""

import fcntl
import hashlib
import uuid
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from search.agents.attempt_line import AttemptLine
from search.errors import DataError
from search.tasks import DatasetShelf, sha256_of
from search.uploads import container
from search.uploads.arrays import array_facts
from search.uploads.dataset_metadata import ArrayFacts, DatasetFacts

_FOLDER = "uploads"
_UNFINISHED = ".unfinished"


class FetchedDatasets:
    """The uploads that an attempt's job names, see `DatasetShelf`.

    Args:
        link: speaks for the attempt; the service gives it its own job's upload alone.
        cache: the folder that the machine's attempts share.
    """

    def __init__(self, link: AttemptLine, cache: Path) -> None:
        self._link = link
        self._folder = cache / _FOLDER

    def facts(self, dataset_id: str) -> DatasetFacts:
        """What the upload holds."""
        return container.read(self._fetched(dataset_id)).facts

    def arrays(self, dataset_id: str) -> ArrayFacts:
        """What the upload of arrays holds."""
        return array_facts(self._fetched(dataset_id))

    def digest(self, dataset_id: str) -> str:
        """SHA-256 of the container."""
        return sha256_of(self._fetched(dataset_id))

    @contextmanager
    def open(self, dataset_id: str) -> Generator[BinaryIO]:
        """The container."""
        with self._fetched(dataset_id).open("rb") as stream:
            yield stream

    def _fetched(self, dataset_id: str) -> Path:
        """The container's file: whole, or not there under this name.

        Raises:
            DataError: the service has no such upload, or the cache cannot be written.
        """
        # An id is never part of a path.
        name = hashlib.sha256(dataset_id.encode()).hexdigest()
        path = self._folder / name
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            # Freed by the kernel when its holder ends, however it ends: the next one to wait finds
            # the file, or begins it anew.
            with (self._folder / f"{name}.lock").open("wb") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                if not path.exists():
                    self._fetch(dataset_id, path)
        except OSError as error:
            raise DataError(
                f"the data set {dataset_id} cannot be kept in {self._folder}: {error}"
            ) from error
        return path

    def _fetch(self, dataset_id: str, path: Path) -> None:
        for left in path.parent.glob(f"{path.name}.*{_UNFINISHED}"):
            left.unlink(missing_ok=True)
        # One of its own: the agent may still write to that of an attempt that was ended.
        draft = path.with_name(f"{path.name}.{uuid.uuid4().hex}{_UNFINISHED}")
        with draft.open("w+b") as stream:
            if not self._link.get_dataset(dataset_id, stream):
                draft.unlink()
                raise DataError(f"there is no data set {dataset_id} any more: it was deleted")
        draft.replace(path)


if TYPE_CHECKING:
    _conforms: type[DatasetShelf] = FetchedDatasets
