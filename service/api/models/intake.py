"""From the file that a user sent to a model that studies can compress."""

import secrets
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

from sqlalchemy.orm import Session

from search.training.model_reading import ModelOptions
from service.api.models.readers import ModelReader, reader_for
from service.api.uploads.forms import Form, UploadRefused
from service.api.uploads.intake import Sent, UploadIntake, name_in, options_in
from service.http.problems import ProblemFault
from storage.blobs.artifacts import ArtifactStore
from storage.engine import Database
from storage.records import UploadedModelRecord
from storage.repositories.uploads import UploadedModels


class ModelIntake(UploadIntake[UploadedModelRecord, ModelOptions]):
    """Reads users' trained models."""

    files = ("file",)
    noun = "model"
    fields = ("name", *ModelOptions.model_fields)

    def __init__(
        self,
        database: Database,
        store: ArtifactStore,
        *,
        folder: Path,
        readers: Sequence[ModelReader],
    ) -> None:
        """Work on uploads below `folder`; the first reader has what no other recognises."""
        super().__init__(database, store, folder)
        self._readers = readers

    def rows(self, session: Session) -> UploadedModels:
        """See `UploadIntake`."""
        return UploadedModels(session)

    def sent(self, form: Form) -> Sent[ModelOptions]:
        """See `UploadIntake`."""
        file = form.files.get("file")
        if file is None:
            raise UploadRefused(
                ProblemFault(
                    path="file", message="this file is required: a model as safetensors or ONNX"
                )
            )
        options = options_in(form, ModelOptions)
        said = {"file": file.sha256, "options": options.model_dump(mode="json")}
        return Sent(name_in(form, file), options, form.files, said)

    def read(
        self, sent: Sent[ModelOptions], folder: Path
    ) -> tuple[UploadedModelRecord, Mapping[str, Path]]:
        """See `UploadIntake`: one file stays, which its reader chooses."""
        file = sent.files["file"]
        found = reader_for(file, self._readers).read(file, sent.options, folder)
        model = UploadedModelRecord(
            id=secrets.token_hex(6),
            name=sent.name,
            source=found.source,
            sha256=found.sha256,
            size=found.path.stat().st_size,
            file_sha256=file.sha256,
            file_size=file.size,
            fingerprint=sent.fingerprint,
            options=sent.said["options"],
            spec=found.spec,
            notes=list(found.notes),
            parameters=found.parameters,
            created_at=datetime.now(UTC),
        )
        return model, {model.sha256: found.path}
