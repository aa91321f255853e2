"""From the files that a user sent to a data set that studies can name, and out again."""

import hashlib
import json
import secrets
from contextlib import AbstractContextManager
from copy import copy
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Self

from pydantic import ValidationError
from sqlalchemy.orm import Session

from search.errors import DataError
from search.tasks.dataset_facts import ReadingOptions
from search.tasks.download import sha256_of
from search.uploads import SUFFIXES, UploadFacts, UploadLimits, decode_upload
from service.problems import ProblemFault
from service.upload_keeping import UploadKeeping
from service.upload_names import clean_name, name_of_file, quoted_name
from service.uploads import Form, ReceivedFile, UploadRefused
from service.validation import faults
from storage.artifacts import ArtifactStore
from storage.audit import Audit
from storage.datasets import Datasets
from storage.engine import Database
from storage.records import ArtifactRecord, DatasetRecord

FILES = ("file", "test")
"""The form's files: all of the data or its training part, and the official test part."""

FIELDS = ("name", *ReadingOptions.model_fields)
"""The form's other parts, all of which can be left out."""

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
        self._keeping = UploadKeeping(database, store, folder)
        self._limits = limits

    def of(self, database: Database) -> Self:
        """The same intake, for a tenant's data sets."""
        narrowed = copy(self)
        narrowed._keeping = self._keeping.of(database)
        return narrowed

    def folder(self) -> AbstractContextManager[Path]:
        """A folder for one upload, which is gone when the block ends."""
        return self._keeping.folder()

    def sweep(self) -> None:
        """Remove what requests of servers that were killed have left behind."""
        self._keeping.sweep()

    def take(self, form: Form, folder: Path) -> Taken:
        """Make a data set of a form's files, or find the one that they are already.

        Args:
            form: what was received, with its files in `folder`.
            folder: of this upload alone.

        Raises:
            UploadRefused: the form or its files are at fault; nothing is kept.
        """
        sent = _looked_through(form)
        with self._keeping.database.read() as session:
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
        with self._keeping.database.read() as session:
            digests = Datasets(session).get(dataset_id).digests

        def delete(session: Session) -> None:
            dataset = Datasets(session).delete(dataset_id)
            Audit(session).note("dataset.deleted", dataset_id, name=dataset.name)

        self._keeping.remove(digests, delete)

    def _keep(self, sent: _Sent, found: UploadFacts, container: Path, folder: Path) -> Taken:
        now = datetime.now(UTC)
        container_digest = sha256_of(container)
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
        stored = dataset

        def add(session: Session) -> bool:
            nonlocal stored
            stored = Datasets(session).add(dataset, artifacts)
            is_new = stored.id == dataset.id
            if is_new:
                Audit(session).note("dataset.uploaded", dataset.id, name=dataset.name)
            return is_new

        is_new = self._keeping.keep(folder, paths, add)
        return Taken(stored, is_new=is_new)


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
                message=f"{quoted_name(test.name)} is not of the format of `file`, which is "
                f"{suffix}",
            )
        )
    given = {name: value for name, value in form.fields.items() if name != "name"}
    try:
        options = ReadingOptions.model_validate(given)
    except ValidationError as error:
        located = [{**fault, "loc": ("body", *fault["loc"])} for fault in error.errors()]
        raise UploadRefused(*faults(located, body=given, schema=None)) from error
    given_name = form.fields.get("name")
    name = clean_name(given_name) if given_name else name_of_file(file.name)
    return _Sent(name=name, suffix=suffix, options=options, files=form.files)


def _suffix(part: str, file: ReceivedFile) -> str:
    _, dot, word = file.name.rpartition(".")
    suffix = f"{dot}{word}".lower()
    if suffix not in SUFFIXES:
        raise UploadRefused(
            ProblemFault(
                path=part,
                message=f"the file is called {quoted_name(file.name)}; allowed are names that end "
                f"in {', '.join(SUFFIXES)}",
            )
        )
    return suffix
