"""From the file that a user sent to a model that studies can compress, and out again."""

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

from models.errors import ModelError
from search.model_reading import ModelFacts, ModelOptions, read_model
from search.tasks.download import sha256_of
from service.problems import ProblemFault
from service.upload_keeping import UploadKeeping
from service.upload_names import clean_name, name_of_file
from service.uploads import Form, ReceivedFile, UploadRefused
from service.validation import faults
from storage.artifacts import ArtifactStore
from storage.audit import Audit
from storage.engine import Database
from storage.records import UploadedModelRecord
from storage.uploaded_models import UploadedModels

FILES = ("file",)
"""The form's file."""

FIELDS = ("name", *ModelOptions.model_fields)
"""The form's other parts, all of which can be left out."""

_CHECKPOINT = "checkpoint"


@dataclass(frozen=True)
class TakenModel:
    """An upload that is a model of ours."""

    model: UploadedModelRecord
    is_new: bool
    """Whether the same file was not there before, read in the same way."""


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


class ModelIntake:
    """Reads uploaded models, keeps them and removes them; faults leave nothing behind."""

    def __init__(
        self, database: Database, store: ArtifactStore, *, folder: Path, memory_bytes: int
    ) -> None:
        """Work on uploads below `folder`; reading one may take so much memory."""
        self._keeping = UploadKeeping(database, store, folder)
        self._memory_bytes = memory_bytes

    def of(self, database: Database) -> Self:
        """The same intake, for a tenant's models."""
        narrowed = copy(self)
        narrowed._keeping = self._keeping.of(database)
        return narrowed

    def folder(self) -> AbstractContextManager[Path]:
        """A folder for one upload, which is gone when the block ends."""
        return self._keeping.folder()

    def take(self, form: Form, folder: Path) -> TakenModel:
        """Make a model of a form's file, or find the one that it is already.

        Args:
            form: what was received, with its file in `folder`.
            folder: of this upload alone.

        Raises:
            UploadRefused: the form or its file is at fault; nothing is kept.
        """
        sent = _looked_through(form)
        with self._keeping.database.read() as session:
            earlier = UploadedModels(session).find(sent.fingerprint)
        if earlier is not None:
            return TakenModel(earlier, is_new=False)
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
        with self._keeping.database.read() as session:
            digest = UploadedModels(session).get(model_id).sha256

        def delete(session: Session) -> None:
            model = UploadedModels(session).delete(model_id)
            Audit(session).note("model.deleted", model_id, name=model.name)

        self._keeping.remove([digest], delete)

    def _keep(self, sent: _Sent, found: ModelFacts, checkpoint: Path, folder: Path) -> TakenModel:
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
        stored = model

        def add(session: Session) -> bool:
            nonlocal stored
            stored = UploadedModels(session).add(model)
            is_new = stored.id == model.id
            if is_new:
                Audit(session).note("model.uploaded", model.id, name=model.name)
            return is_new

        is_new = self._keeping.keep(folder, {model.sha256: checkpoint}, add)
        return TakenModel(stored, is_new=is_new)


def _looked_through(form: Form) -> _Sent:
    file = form.files.get("file")
    if file is None:
        raise UploadRefused(
            ProblemFault(path="file", message="this file is required: a model as safetensors")
        )
    given = {name: value for name, value in form.fields.items() if name != "name"}
    try:
        options = ModelOptions.model_validate(given)
    except ValidationError as error:
        located = [{**fault, "loc": ("body", *fault["loc"])} for fault in error.errors()]
        raise UploadRefused(*faults(located, body=given, schema=None)) from error
    given_name = form.fields.get("name")
    name = clean_name(given_name) if given_name else name_of_file(file.name)
    return _Sent(name=name, options=options, file=file)
