"""From the files that a user sent to a data set that studies can name, and out again."""

import hashlib
import json
import secrets
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from sqlalchemy.orm import Session

from search.errors import DataError
from search.tasks.download import sha256_of
from search.uploads.dataset_metadata import ReadingOptions
from search.uploads.uploads import SUFFIXES, UploadFacts, UploadLimits, decode_upload
from service.api.uploads.forms import Form, ReceivedFile, UploadRefused
from service.api.uploads.keeping import Taken, UploadKeeping, name_in, options_in
from service.api.uploads.names import quoted_name
from service.http.problems import ProblemFault
from storage.accounts.audit import Audit
from storage.blobs.artifacts import ArtifactStore
from storage.engine import Database
from storage.records import ArtifactRecord, DatasetRecord
from storage.repositories.uploads import Datasets

FILES = ("file", "test")
"""The form's files: all of the data or its training part, and the official test part."""

FIELDS = ("name", *ReadingOptions.model_fields)
"""The form's other parts, all of which can be left out."""

_CONTAINER = "container"


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


class DatasetIntake(UploadKeeping):
    """Reads uploads, keeps them and removes them; a fault or a kill leaves nothing behind."""

    def __init__(
        self, database: Database, store: ArtifactStore, *, folder: Path, limits: UploadLimits
    ) -> None:
        """Work on uploads below `folder`, each read within the limits."""
        super().__init__(database, store, folder)
        self._limits = limits

    def take(self, form: Form, folder: Path) -> Taken[DatasetRecord]:
        """Make a data set of a form's files, or find the one that they are already.

        Args:
            form: what was received, with its files in `folder`.
            folder: of this upload alone.

        Raises:
            UploadRefused: the form or its files are at fault; nothing is kept.
        """
        sent = _looked_through(form)
        with self.database.read() as session:
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
        with self.database.read() as session:
            digests = Datasets(session).get(dataset_id).digests

        def delete(session: Session) -> None:
            dataset = Datasets(session).delete(dataset_id)
            Audit(session).note("dataset.deleted", dataset_id, name=dataset.name)

        self.remove(digests, delete)

    def _keep(
        self, sent: _Sent, found: UploadFacts, container: Path, folder: Path
    ) -> Taken[DatasetRecord]:
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
        return self.keep(
            folder,
            paths,
            dataset,
            lambda session: Datasets(session).add(dataset, artifacts),
            noted="dataset.uploaded",
        )


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
    options = options_in(form, ReadingOptions)
    return _Sent(name=name_in(form, file), suffix=suffix, options=options, files=form.files)


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
