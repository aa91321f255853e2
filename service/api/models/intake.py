"""From the file that a user sent to a model that studies can compress."""

import secrets
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

from sqlalchemy.orm import Session

from search.tasks.download import sha256_of
from search.training.model_reading import ModelOptions, read_model
from service.api.uploads.forms import Form, UploadRefused
from service.api.uploads.intake import Sent, UploadIntake, name_in, options_in
from service.http.problems import ProblemFault
from storage.blobs.artifacts import ArtifactStore
from storage.engine import Database
from storage.records import UploadedModelRecord
from storage.repositories.uploads import UploadedModels

_CHECKPOINT = "checkpoint"


class ModelIntake(UploadIntake[UploadedModelRecord, ModelOptions]):
    """Reads users' trained models."""

    files = ("file",)
    noun = "model"
    fields = ("name", *ModelOptions.model_fields)

    def __init__(
        self, database: Database, store: ArtifactStore, *, folder: Path, memory_bytes: int
    ) -> None:
        """Work on uploads below `folder`; reading one may take so much memory."""
        super().__init__(database, store, folder)
        self._memory_bytes = memory_bytes

    def rows(self, session: Session) -> UploadedModels:
        """See `UploadIntake`."""
        return UploadedModels(session)

    def sent(self, form: Form) -> Sent[ModelOptions]:
        """See `UploadIntake`."""
        file = form.files.get("file")
        if file is None:
            raise UploadRefused(
                ProblemFault(path="file", message="this file is required: a model as safetensors")
            )
        options = options_in(form, ModelOptions)
        said = {"file": file.sha256, "options": options.model_dump(mode="json")}
        return Sent(name_in(form, file), options, form.files, said)

    def read(
        self, sent: Sent[ModelOptions], folder: Path
    ) -> tuple[UploadedModelRecord, Mapping[str, Path]]:
        """See `UploadIntake`: the checkpoint alone stays."""
        checkpoint, file = folder / _CHECKPOINT, sent.files["file"]
        found = read_model(file.path, sent.options, out=checkpoint, memory_bytes=self._memory_bytes)
        model = UploadedModelRecord(
            id=secrets.token_hex(6),
            name=sent.name,
            source=found.source,
            sha256=sha256_of(checkpoint),
            size=checkpoint.stat().st_size,
            file_sha256=file.sha256,
            file_size=file.size,
            fingerprint=sent.fingerprint,
            options=sent.said["options"],
            spec=found.spec.model_dump(mode="json"),
            notes=list(found.notes),
            parameters=found.spec.parameter_count(),
            created_at=datetime.now(UTC),
        )
        return model, {model.sha256: checkpoint}
