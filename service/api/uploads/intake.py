"""Uploads made records, of every kind: bytes before their rows, and none without one."""

import hashlib
import json
import logging
from abc import ABC, abstractmethod
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Generic, Self, TypeVar

from pydantic import BaseModel, ValidationError
from sqlalchemy.orm import Session

from models.errors import ModelError
from search.errors import DataError
from service.api.uploads.folders import UploadFolders
from service.api.uploads.forms import Form, ReceivedFile, UploadRefused
from service.api.uploads.names import clean_name, name_of_file
from service.http.problems import ProblemFault
from service.http.validation import faults
from storage.accounts.audit import Audit
from storage.accounts.quotas import Quotas
from storage.blobs.artifacts import ArtifactStore
from storage.engine import Database
from storage.errors import ArtifactNotFound, StoreUnavailable
from storage.garbage_collect import garbage_collect
from storage.records import ArtifactRecord, UploadRecord
from storage.repositories.artifact_rows import ArtifactRows
from storage.repositories.uploads import Uploads

_log = logging.getLogger(__name__)

_Record = TypeVar("_Record", bound=UploadRecord)
_Options = TypeVar("_Options", bound=BaseModel)


@dataclass(frozen=True)
class Taken(Generic[_Record]):
    """An upload that is a data set or a model now."""

    record: _Record
    is_new: bool
    """Whether the same files were not there before, read in the same way."""


@dataclass(frozen=True)
class Sent(Generic[_Options]):
    """What a form says, once it is looked through."""

    name: str
    options: _Options
    files: Mapping[str, ReceivedFile]
    said: Mapping[str, Any]
    """What tells it from other uploads: the files' digests and the options, as JSON has them."""

    @property
    def fingerprint(self) -> str:
        """Equal ones are one upload."""
        return hashlib.sha256(json.dumps(self.said, sort_keys=True).encode()).hexdigest()


class UploadIntake(ABC, Generic[_Record, _Options]):
    """Reads uploads, keeps them and removes them; a fault or a kill leaves nothing behind."""

    files: ClassVar[Sequence[str]]
    """The form's files."""
    fields: ClassVar[Sequence[str]]
    """The form's other parts, all of which can be left out."""
    noun: ClassVar[str]
    """The audit's word for what an upload becomes."""

    def __init__(self, database: Database, store: ArtifactStore, folder: Path) -> None:
        """Have a folder for each request below `folder`."""
        self.database = database
        self._store = store
        self._folders = UploadFolders(folder)

    @abstractmethod
    def rows(self, session: Session) -> Uploads[_Record]:
        """What there is already."""

    @abstractmethod
    def sent(self, form: Form) -> Sent[_Options]:
        """Look a form through.

        Raises:
            UploadRefused: it is at fault.
        """

    @abstractmethod
    def read(self, sent: Sent[_Options], folder: Path) -> tuple[_Record, Mapping[str, Path]]:
        """Read the files: what they become, and what to store by its digest.

        Raises:
            DataError: a file cannot be read.
            ModelError: it is no model that is known.
        """

    def take(self, form: Form, folder: Path) -> Taken[_Record]:
        """Make a record of a form's files, or find the one that they are already.

        Args:
            form: what was received, with its files in `folder`.
            folder: of this upload alone.

        Raises:
            UploadRefused: the form or its files are at fault; nothing is kept.
        """
        sent = self.sent(form)
        with self.database.read() as session:
            earlier = self.rows(session).find(sent.fingerprint)
        if earlier is not None:
            return Taken(earlier, is_new=False)
        try:
            record, paths = self.read(sent, folder)
        except (DataError, ModelError) as error:
            raise UploadRefused(ProblemFault(path="file", message=str(error))) from error
        return self._keep(folder, paths, record)

    def delete(self, upload_id: str) -> None:
        """Remove an upload, and those of its bytes that nothing else names.

        Raises:
            NotFound: there is none.
            Conflict: a study that has not ended uses it.
        """
        with self.database.read() as session:
            digests = self.rows(session).get(upload_id).digests
        with self._folders.open() as folder:
            self._folders.plan(folder, digests)
            with self.database.write() as session:
                ArtifactRows(session).lock_names()
                upload = self.rows(session).delete(upload_id)
                Audit(session).note(f"{self.noun}.deleted", upload_id, name=upload.name)
            self._garbage_collect(digests)

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

    def _keep(self, folder: Path, paths: Mapping[str, Path], record: _Record) -> Taken[_Record]:
        """Store files, and then the rows that name them, within the tenant's quota."""
        artifacts = [
            ArtifactRecord(sha256=digest, size=path.stat().st_size, created_at=record.created_at)
            for digest, path in paths.items()
        ]
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
                    stored = self.rows(session).add(record, artifacts)
                is_new = stored.id == record.id
                if is_new:
                    Audit(session).note(f"{self.noun}.uploaded", record.id, name=record.name)
        except BaseException:
            self._garbage_collect(digests)
            raise
        if not is_new:
            # Another request was faster with the same files.
            self._garbage_collect(digests)
        return Taken(stored, is_new=is_new)

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
