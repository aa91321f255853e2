"""What the API says of uploaded models."""

from datetime import datetime
from typing import Literal

from pydantic import Field

from models.architectures import AnyArchitecture
from models.model import ModelSpec
from models.report import ReportRow, ReportTotals, parameter_report
from models.spec import Spec
from search.model_reading import ModelOptions
from search.task_fits import TaskFit, fitting_tasks
from storage.records import UploadedModelRecord


class ModelLinks(Spec):
    """Where a model is; paths on this server."""

    model: str
    checkpoint: str = Field(description="safetensors of our own form")
    page: str = Field(description="for people")


class ModelSignature(Spec):
    """The shapes at both ends of a model, as far as its file tells them."""

    input_size: int = Field(description="features per step")
    sequence_length: int | None = Field(
        description="steps that are read as one vector; null: it runs at any number of steps"
    )
    output_size: int
    output_steps: Literal["last", "every"]
    vocabulary: int | None = Field(description="tokens that are read; null: numbers are")


class ModelDocument(Spec):
    """An uploaded model: what was sent, and what was found in it."""

    id: str
    name: str
    source: Literal["reflectory", "torch"] = Field(
        description="what was sent: a checkpoint of ours, or a state dict of plain torch layers"
    )
    sha256: str = Field(description="of the stored checkpoint")
    size_bytes: int = Field(description="of the stored checkpoint")
    file_sha256: str = Field(description="of the file, as it was sent; it is not kept")
    file_size_bytes: int
    options: ModelOptions
    notes: tuple[str, ...] = Field(description="what was changed on the way to the checkpoint")
    architecture: AnyArchitecture
    signature: ModelSignature
    parameters: int = Field(description="trainable numbers")
    created_at: datetime
    links: ModelLinks


class ModelDetail(ModelDocument):
    """An uploaded model with all its tensors, and what it could be tried on."""

    totals: ReportTotals
    rows: tuple[ReportRow, ...] = Field(description="each module followed by its own tensors")
    fits: tuple[TaskFit, ...] = Field(
        description="the tasks, as they are by default, whose shapes are the model's"
    )


class ModelPage(Spec):
    """Uploaded models, newest first."""

    items: tuple[ModelDocument, ...]
    next_cursor: str | None


def model_path(model_id: str) -> str:
    """Where a model is."""
    return f"/v1/models/{model_id}"


def model_page_path(model_id: str) -> str:
    """Where people look at a model."""
    return f"/models/{model_id}"


def model_document(model: UploadedModelRecord) -> ModelDocument:
    """A model with its links."""
    return _document(model, ModelSpec.model_validate(model.spec))


def model_detail(model: UploadedModelRecord) -> ModelDetail:
    """A model with its tensors; it is laid out without memory."""
    spec = ModelSpec.model_validate(model.spec)
    report = parameter_report(spec)
    return ModelDetail(
        **dict(_document(model, spec)),
        totals=report.totals,
        rows=report.rows,
        fits=fitting_tasks(spec),
    )


def _document(model: UploadedModelRecord, spec: ModelSpec) -> ModelDocument:
    signature = spec.signature.model_dump()
    if spec.architecture.any_length:
        signature["sequence_length"] = None
    return ModelDocument.model_validate(
        {
            "id": model.id,
            "name": model.name,
            "source": model.source,
            "sha256": model.sha256,
            "size_bytes": model.size,
            "file_sha256": model.file_sha256,
            "file_size_bytes": model.file_size,
            "options": model.options,
            "notes": model.notes,
            "architecture": spec.architecture,
            "signature": signature,
            "parameters": model.parameters,
            "created_at": model.created_at,
            "links": {
                "model": model_path(model.id),
                "checkpoint": f"{model_path(model.id)}/checkpoint",
                "page": model_page_path(model.id),
            },
        }
    )
