"""From the files that a user sent to a data set that studies can name."""

import secrets
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from sqlalchemy.orm import Session

from search.tasks.download import sha256_of
from search.uploads.dataset_metadata import ReadingOptions
from search.uploads.uploads import SUFFIXES, SUFFIXES_OF, UploadLimits, decode_upload
from service.api.uploads.forms import Form, ReceivedFile, UploadRefused
from service.api.uploads.intake import Sent, UploadIntake, name_in, options_in
from service.api.uploads.names import quoted_name
from service.http.problems import ProblemFault
from storage.blobs.artifacts import ArtifactStore
from storage.engine import Database
from storage.records import DatasetRecord
from storage.repositories.uploads import Datasets

_CONTAINER = "container"


class DatasetIntake(UploadIntake[DatasetRecord, ReadingOptions]):
    """Reads users' data sets."""

    files = ("file", "test")
    noun = "dataset"
    fields = ("name", *ReadingOptions.model_fields)

    def __init__(
        self, database: Database, store: ArtifactStore, *, folder: Path, limits: UploadLimits
    ) -> None:
        """Work on uploads below `folder`, each read within the limits."""
        super().__init__(database, store, folder)
        self._limits = limits

    def rows(self, session: Session) -> Datasets:
        """See `UploadIntake`."""
        return Datasets(session)

    def sent(self, form: Form) -> Sent[ReadingOptions]:
        """See `UploadIntake`: the files are of one format, which their names tell."""
        file = form.files.get("file")
        if file is None:
            names = ", ".join(SUFFIXES)
            raise _refused("file", f"this file is required, with a name in {names}")
        options = options_in(form, ReadingOptions)
        suffix = _suffix("file", file, SUFFIXES_OF[options.holds])
        test = form.files.get("test")
        if test is not None and options.holds == "arrays":
            raise _refused("test", "arrays are divided by the study; send them in one file")
        if test is not None and _suffix("test", test, SUFFIXES) != suffix:
            name = quoted_name(test.name)
            raise _refused("test", f"{name} is not of the format of `file`, which is {suffix}")
        said = {
            "suffix": suffix,
            "files": {part: file.sha256 for part, file in form.files.items()},
            # Uploads from before there was a choice keep their fingerprints.
            "options": options.model_dump(
                mode="json", exclude={"holds"} if options.holds == "samples" else None
            ),
        }
        return Sent(name_in(form, file), options, form.files, said)

    def read(
        self, sent: Sent[ReadingOptions], folder: Path
    ) -> tuple[DatasetRecord, Mapping[str, Path]]:
        """See `UploadIntake`: the files stay, beside the container that they are read into."""
        container = folder / _CONTAINER
        found = decode_upload(
            {part: file.path for part, file in sent.files.items()},
            suffix=sent.said["suffix"],
            options=sent.options,
            out=container,
            limits=self._limits,
        )
        container_digest = sha256_of(container)
        paths = {file.sha256: file.path for file in sent.files.values()}
        test = sent.files.get("test")
        dataset = DatasetRecord(
            id=secrets.token_hex(6),
            name=sent.name,
            suffix=sent.said["suffix"],
            size=sum(file.size for file in sent.files.values()),
            sha256=sent.files["file"].sha256,
            test_sha256=None if test is None else test.sha256,
            fingerprint=sent.fingerprint,
            options=sent.said["options"],
            facts=found.facts.model_dump(mode="json"),
            preview=[sample.model_dump(mode="json") for sample in found.preview],
            container_sha256=container_digest,
            created_at=datetime.now(UTC),
        )
        return dataset, {**paths, container_digest: container}


def _suffix(part: str, file: ReceivedFile, allowed: Sequence[str]) -> str:
    name = file.name.lower()
    suffix = next((one for one in allowed if name.endswith(one)), None)
    if suffix is None:
        raise _refused(
            part,
            f"the file is called {quoted_name(file.name)}; allowed are names that end in "
            f"{', '.join(allowed)}",
        )
    return suffix


def _refused(part: str, message: str) -> UploadRefused:
    return UploadRefused(ProblemFault(path=part, message=message))
