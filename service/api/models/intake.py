"""From the file that a user sent to a model that studies can compress, and out again."""

import hashlib
import json
import secrets
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from sqlalchemy.orm import Session

from models.errors import ModelError
from search.tasks.download import sha256_of
from search.training.model_reading import ModelFacts, ModelOptions, read_model
from service.api.uploads.forms import Form, ReceivedFile, UploadRefused
from service.api.uploads.keeping import Taken, UploadKeeping, name_in, options_in
from service.http.problems import ProblemFault
from storage.accounts.audit import Audit
from storage.blobs.artifacts import ArtifactStore
from storage.engine import Database
from storage.records import UploadedModelRecord
from storage.repositories.uploads import UploadedModels

FILES = ("file",)
"""The form's file."""

FIELDS = ("name", *ModelOptions.model_fields)
"""The form's other parts, all of which can be left out."""

_CHECKPOINT = "checkpoint"


@dataclass(frozen=True)
class _Sent:
    """What a form says, once it is looked through."""

    name: str
    options: ModelOptions
    file: ReceivedFile

    @property
    def fingerprint(self) -> str:
        said = {"file": self.file.sha256, "options": self.options.model_dump(mode="json")}
        return hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()


class ModelIntake(UploadKeeping):
    """Reads uploaded models, keeps them and removes them; faults leave nothing behind."""

    def __init__(
        self, database: Database, store: ArtifactStore, *, folder: Path, memory_bytes: int
    ) -> None:
        """Work on uploads below `folder`; reading one may take so much memory."""
        super().__init__(database, store, folder)
        self._memory_bytes = memory_bytes

    def take(self, form: Form, folder: Path) -> Taken[UploadedModelRecord]:
        """Make a model of a form's file, or find the one that it is already.

        Args:
            form: what was received, with its file in `folder`.
            folder: of this upload alone.

        Raises:
            UploadRefused: the form or its file is at fault; nothing is kept.
        """
        sent = _looked_through(form)
        with self.database.read() as session:
            earlier = UploadedModels(session).find(sent.fingerprint)
        if earlier is not None:
            return Taken(earlier, is_new=False)
        checkpoint = folder / _CHECKPOINT
        try:
            found = read_model(
                sent.file.path, sent.options, out=checkpoint, memory_bytes=self._memory_bytes
            )
        except ModelError as error:
            raise UploadRefused(ProblemFault(path="file", message=str(error))) from error
        return self._keep(sent, found, checkpoint, folder)

    def delete(self, model_id: str) -> None:
        """Remove a model, and its checkpoint unless something else names it.

        Raises:
            NotFound: there is none.
            Conflict: a study that has not ended compresses it.
        """
        with self.database.read() as session:
            digest = UploadedModels(session).get(model_id).sha256

        def delete(session: Session) -> None:
            model = UploadedModels(session).delete(model_id)
            Audit(session).note("model.deleted", model_id, name=model.name)

        self.remove([digest], delete)

    def _keep(
        self, sent: _Sent, found: ModelFacts, checkpoint: Path, folder: Path
    ) -> Taken[UploadedModelRecord]:
        model = UploadedModelRecord(
            id=secrets.token_hex(6),
            name=sent.name,
            source=found.source,
            sha256=sha256_of(checkpoint),
            size=checkpoint.stat().st_size,
            file_sha256=sent.file.sha256,
            file_size=sent.file.size,
            fingerprint=sent.fingerprint,
            options=sent.options.model_dump(mode="json"),
            spec=found.spec.model_dump(mode="json"),
            notes=list(found.notes),
            parameters=found.spec.parameter_count(),
            created_at=datetime.now(UTC),
        )
        return self.keep(
            folder,
            {model.sha256: checkpoint},
            model,
            lambda session: UploadedModels(session).add(model),
            noted="model.uploaded",
        )


def _looked_through(form: Form) -> _Sent:
    file = form.files.get("file")
    if file is None:
        raise UploadRefused(
            ProblemFault(path="file", message="this file is required: a model as safetensors")
        )
    options = options_in(form, ModelOptions)
    return _Sent(name=name_in(form, file), options=options, file=file)
