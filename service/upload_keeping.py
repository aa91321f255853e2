"""Bytes of uploads before their rows, and none without one: what all intakes have in common."""

import logging
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from pathlib import Path
from typing import Self

from sqlalchemy.orm import Session

from service.upload_folders import UploadFolders
from storage.artifact_rows import ArtifactRows
from storage.artifacts import ArtifactStore
from storage.engine import Database
from storage.errors import ArtifactNotFound, StoreUnavailable
from storage.unnamed import remove_unnamed

_log = logging.getLogger(__name__)


class UploadKeeping:
    """Stores and removes what uploads become; a fault or a kill leaves nothing behind."""

    def __init__(self, database: Database, store: ArtifactStore, folder: Path) -> None:
        """Have a folder for each request below `folder`."""
        self.database = database
        self._store = store
        self._folders = UploadFolders(folder)

    def of(self, database: Database) -> Self:
        """The same, for a tenant's uploads."""
        narrowed = copy(self)
        narrowed.database = database
        return narrowed

    @contextmanager
    def folder(self) -> Generator[Path]:
        """A folder for one upload, which is gone when the block ends."""
        with self._folders.open() as folder:
            yield folder

    def sweep(self) -> None:
        """Remove what requests of servers that were killed have left behind."""
        for planned in self._folders.abandoned():
            try:
                self._remove_unnamed(planned)
            except StoreUnavailable as error:
                # No reason not to start; bytes without a row are swept by the coordinator, too.
                _log.warning("an abandoned upload is not removed", extra={"reason": str(error)})

    def keep(self, folder: Path, paths: Mapping[str, Path], add: Callable[[Session], bool]) -> bool:
        """Store files, and then the rows that name them.

        Args:
            folder: of this upload alone.
            paths: the files by their digests.
            add: adds the rows, in one transaction; false says that the same were there already.

        Returns:
            What `add` did.
        """
        digests = list(paths)
        self._folders.plan(folder, digests)
        try:
            for digest, path in paths.items():
                self._store_file(digest, path)
            with self.database.write() as session:
                ArtifactRows(session).lock_names()
                # An upload of the same bytes may have been deleted since they were written.
                for digest in self._missing(digests):
                    self._store_file(digest, paths[digest])
                is_new = add(session)
        except BaseException:
            self._remove_unnamed(digests)
            raise
        if not is_new:
            # Another request was faster with the same files.
            self._remove_unnamed(digests)
        return is_new

    def remove(self, digests: Sequence[str], delete: Callable[[Session], None]) -> None:
        """Take away rows by `delete`, and then those of the bytes that nothing else names."""
        with self._folders.open() as folder:
            self._folders.plan(folder, digests)
            with self.database.write() as session:
                ArtifactRows(session).lock_names()
                delete(session)
            self._remove_unnamed(digests)

    def _store_file(self, digest: str, path: Path) -> None:
        with path.open("rb") as stream:
            self._store.write(digest, stream)

    def _missing(self, digests: Sequence[str]) -> list[str]:
        missing: list[str] = []
        for digest in digests:
            try:
                self._store.size(digest)
            except ArtifactNotFound:
                missing.append(digest)
        return missing

    def _remove_unnamed(self, digests: Sequence[str]) -> None:
        if digests:
            remove_unnamed(self.database, self._store, digests)
