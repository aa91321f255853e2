"""What all intakes of uploads have in common: bytes before their rows, and none without one."""

import logging
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, Self, TypeVar

from pydantic import BaseModel, ValidationError
from sqlalchemy.orm import Session

from service.api.uploads.folders import UploadFolders
from service.api.uploads.forms import Form, ReceivedFile, UploadRefused
from service.api.uploads.names import clean_name, name_of_file
from service.http.validation import faults
from storage.accounts.audit import Audit
from storage.accounts.quotas import Quotas
from storage.blobs.artifacts import ArtifactStore
from storage.engine import Database
from storage.errors import ArtifactNotFound, StoreUnavailable
from storage.garbage_collect import garbage_collect
from storage.records import DatasetRecord, UploadedModelRecord
from storage.repositories.artifact_rows import ArtifactRows

_log = logging.getLogger(__name__)

_Record = TypeVar("_Record", DatasetRecord, UploadedModelRecord)
_Options = TypeVar("_Options", bound=BaseModel)


@dataclass(frozen=True)
class Taken(Generic[_Record]):
    """An upload that is a data set or a model now."""

    record: _Record
    is_new: bool
    """Whether the same files were not there before, read in the same way."""


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
                self._garbage_collect(planned)
            except StoreUnavailable as error:
                # No reason not to start; bytes without a row are swept by the coordinator, too.
                _log.warning("an abandoned upload is not removed", extra={"reason": str(error)})

    def keep(
        self,
        folder: Path,
        paths: Mapping[str, Path],
        record: _Record,
        add: Callable[[Session], _Record],
        *,
        noted: str,
    ) -> Taken[_Record]:
        """Store files, and then the rows that name them, within the tenant's quota.

        Args:
            folder: of this upload alone.
            paths: the files by their digests.
            record: what the upload becomes.
            add: adds its rows, in one transaction, or finds those of the same files.
            noted: the audit's word for it.
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
                with Quotas(session).bytes_added():
                    stored = add(session)
                is_new = stored.id == record.id
                if is_new:
                    Audit(session).note(noted, record.id, name=record.name)
        except BaseException:
            self._garbage_collect(digests)
            raise
        if not is_new:
            # Another request was faster with the same files.
            self._garbage_collect(digests)
        return Taken(stored, is_new=is_new)

    def remove(self, digests: Sequence[str], delete: Callable[[Session], None]) -> None:
        """Take away rows by `delete`, and then those of the bytes that nothing else names."""
        with self._folders.open() as folder:
            self._folders.plan(folder, digests)
            with self.database.write() as session:
                ArtifactRows(session).lock_names()
                delete(session)
            self._garbage_collect(digests)

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

    def _garbage_collect(self, digests: Sequence[str]) -> None:
        if digests:
            garbage_collect(self.database, self._store, digests)


def name_in(form: Form, file: ReceivedFile) -> str:
    """The name that a form gives, or else the file's."""
    given = form.fields.get("name")
    return clean_name(given) if given else name_of_file(file.name)


def options_in(form: Form, kind: type[_Options]) -> _Options:
    """What a form says beside the name and the files.

    Raises:
        UploadRefused: a field has no value that is allowed.
    """
    given = {name: value for name, value in form.fields.items() if name != "name"}
    try:
        return kind.model_validate_strings(given)
    except ValidationError as error:
        located = [{**fault, "loc": ("body", *fault["loc"])} for fault in error.errors()]
        raise UploadRefused(*faults(located, body=given, schema=None)) from error
