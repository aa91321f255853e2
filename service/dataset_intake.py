"""From the files that a user sent to a data set that studies can name, and out again."""

import hashlib
import json
import secrets
import unicodedata
from collections.abc import Sequence
from contextlib import AbstractContextManager, suppress
from copy import copy
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Self

from pydantic import ValidationError

from search.errors import DataError
from search.tasks.dataset_facts import ReadingOptions
from search.uploads import SUFFIXES, UploadFacts, UploadLimits, decode_upload
from service.problems import ProblemFault
from service.upload_folders import UploadFolders
from service.uploads import Form, ReceivedFile, UploadRefused
from service.validation import faults
from storage.artifact_rows import ArtifactRows
from storage.artifacts import ArtifactStore
from storage.audit import Audit
from storage.datasets import Datasets
from storage.engine import Database
from storage.errors import ArtifactNotFound
from storage.records import ArtifactRecord, DatasetRecord

FILES = ("file", "test")
"""The form's files: all of the data or its training part, and the official test part."""

FIELDS = ("name", *ReadingOptions.model_fields)
"""The form's other parts, all of which can be left out."""

_LONGEST_NAME = 200
_CONTAINER = "container"


@dataclass(frozen=True)
class Taken:
    """An upload that is a data set now."""

    dataset: DatasetRecord
    is_new: bool
    """Whether the same files were not there before, read in the same way."""


@dataclass(frozen=True)
class _Sent:
    """What a form says, once it is looked through."""

    name: str
    suffix: str
    options: ReadingOptions
    files: dict[str, ReceivedFile]

    @property
    def fingerprint(self) -> str:
        said = {
            "suffix": self.suffix,
            "files": {part: file.sha256 for part, file in self.files.items()},
            "options": self.options.model_dump(mode="json"),
        }
        return hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()


class DatasetIntake:
    """Reads uploads, keeps them and removes them; a fault or a kill leaves nothing behind."""

    def __init__(
        self, database: Database, store: ArtifactStore, *, folder: Path, limits: UploadLimits
    ) -> None:
        """Work on uploads below `folder`, each read within the limits."""
        self._database = database
        self._store = store
        self._folders = UploadFolders(folder)
        self._limits = limits

    def of(self, database: Database) -> Self:
        """The same intake, for a tenant's data sets."""
        narrowed = copy(self)
        narrowed._database = database
        return narrowed

    def folder(self) -> AbstractContextManager[Path]:
        """A folder for one upload, which is gone when the block ends."""
        return self._folders.open()

    def sweep(self) -> None:
        """Remove what requests of servers that were killed have left behind."""
        for planned in self._folders.abandoned():
            self._remove_unnamed(planned)

    def take(self, form: Form, folder: Path) -> Taken:
        """Make a data set of a form's files, or find the one that they are already.

        Args:
            form: what was received, with its files in `folder`.
            folder: of this upload alone.

        Raises:
            UploadRefused: the form or its files are at fault; nothing is kept.
        """
        sent = _looked_through(form)
        with self._database.read() as session:
            earlier = Datasets(session).find(sent.fingerprint)
        if earlier is not None:
            return Taken(earlier, is_new=False)
        container = folder / _CONTAINER
        try:
            found = decode_upload(
                {part: file.path for part, file in sent.files.items()},
                suffix=sent.suffix,
                options=sent.options,
                out=container,
                limits=self._limits,
            )
        except DataError as error:
            raise UploadRefused(ProblemFault(path="file", message=str(error))) from error
        return self._keep(sent, found, container, folder)

    def delete(self, dataset_id: str) -> None:
        """Remove a data set, and those of its bytes that nothing else names.

        Raises:
            NotFound: there is none.
            Conflict: a study that has not ended uses it.
        """
        with self._database.read() as session:
            digests = Datasets(session).get(dataset_id).digests
        with self._folders.open() as folder:
            self._folders.plan(folder, digests)
            with self._database.write() as session:
                ArtifactRows(session).lock_names()
                dataset = Datasets(session).delete(dataset_id)
                Audit(session).note("dataset.deleted", dataset_id, name=dataset.name)
            self._remove_unnamed(digests)

    def _keep(self, sent: _Sent, found: UploadFacts, container: Path, folder: Path) -> Taken:
        now = datetime.now(UTC)
        with container.open("rb") as stream:
            container_digest = hashlib.file_digest(stream, "sha256").hexdigest()
        paths = {file.sha256: file.path for file in sent.files.values()}
        paths[container_digest] = container
        test = sent.files.get("test")
        dataset = DatasetRecord(
            id=secrets.token_hex(6),
            name=sent.name,
            suffix=sent.suffix,
            size=sum(file.size for file in sent.files.values()),
            sha256=sent.files["file"].sha256,
            test_sha256=None if test is None else test.sha256,
            fingerprint=sent.fingerprint,
            options=sent.options.model_dump(mode="json"),
            facts=found.facts.model_dump(mode="json"),
            preview=[sample.model_dump(mode="json") for sample in found.preview],
            container_sha256=container_digest,
            created_at=now,
        )
        artifacts = [
            ArtifactRecord(sha256=digest, size=path.stat().st_size, created_at=now)
            for digest, path in paths.items()
        ]
        self._folders.plan(folder, list(paths))
        try:
            for digest, path in paths.items():
                self._store_file(digest, path)
            with self._database.write() as session:
                ArtifactRows(session).lock_names()
                # A data set of the same bytes may have been deleted since they were written.
                for digest in _missing(self._store, list(paths)):
                    self._store_file(digest, paths[digest])
                stored = Datasets(session).add(dataset, artifacts)
                if stored.id == dataset.id:
                    Audit(session).note("dataset.uploaded", dataset.id, name=dataset.name)
        except BaseException:
            self._remove_unnamed(list(paths))
            raise
        if stored.id == dataset.id:
            return Taken(stored, is_new=True)
        # Another request was faster with the same files.
        self._remove_unnamed(list(paths))
        return Taken(stored, is_new=False)

    def _store_file(self, digest: str, path: Path) -> None:
        with path.open("rb") as stream:
            self._store.write(digest, stream)

    def _remove_unnamed(self, digests: Sequence[str]) -> None:
        """Remove those bytes that no row names; see Note [Named bytes stay]."""
        if not digests:
            return
        with self._database.write() as session:
            rows = ArtifactRows(session)
            rows.lock_names()
            for digest in rows.unnamed(digests):
                with suppress(ArtifactNotFound):
                    self._store.remove(digest)


def _missing(store: ArtifactStore, digests: Sequence[str]) -> list[str]:
    missing: list[str] = []
    for digest in digests:
        try:
            store.size(digest)
        except ArtifactNotFound:
            missing.append(digest)
    return missing


def _looked_through(form: Form) -> _Sent:
    file = form.files.get("file")
    if file is None:
        raise UploadRefused(
            ProblemFault(
                path="file", message=f"this file is required, with a name in {', '.join(SUFFIXES)}"
            )
        )
    suffix = _suffix("file", file)
    test = form.files.get("test")
    if test is not None and _suffix("test", test) != suffix:
        raise UploadRefused(
            ProblemFault(
                path="test",
                message=f"{_shown(test.name)} is not of the format of `file`, which is {suffix}",
            )
        )
    given = {name: value for name, value in form.fields.items() if name != "name"}
    try:
        options = ReadingOptions.model_validate(given)
    except ValidationError as error:
        located = [{**fault, "loc": ("body", *fault["loc"])} for fault in error.errors()]
        raise UploadRefused(*faults(located, body=given, schema=None)) from error
    name = form.fields.get("name") or file.name.replace("\\", "/").rpartition("/")[2]
    return _Sent(name=_clean(name), suffix=suffix, options=options, files=form.files)


def _suffix(part: str, file: ReceivedFile) -> str:
    _, dot, word = file.name.rpartition(".")
    suffix = f"{dot}{word}".lower()
    if suffix not in SUFFIXES:
        raise UploadRefused(
            ProblemFault(
                path=part,
                message=f"the file is called {_shown(file.name)}; allowed are names that end in "
                f"{', '.join(SUFFIXES)}",
            )
        )
    return suffix


def _clean(name: str) -> str:
    """A name that can be shown on one line: signs that control or are none are left out."""
    shown = "".join(
        " " if unicodedata.category(sign)[0] in "CZ" else sign
        for sign in unicodedata.normalize("NFC", name)
    )
    return " ".join(shown.split())[:_LONGEST_NAME].strip() or "unnamed"


def _shown(name: str) -> str:
    cleaned = _clean(name)
    return repr(cleaned if len(cleaned) <= 80 else f"{cleaned[:80]}...")
