"""Uploaded models as the API answers with them."""

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field

from models.spec import Spec
from search.documents.models import TaskFit
from service.api.schema import ByName, DescribedBy, without_titles_of_references


def _architecture() -> Any:
    from models.architectures import AnyArchitecture

    return AnyArchitecture


def _options() -> Any:
    from search.training.model_reading import ModelOptions

    return ModelOptions


def _row() -> Any:
    from models.report import ReportRow

    return ReportRow


def _totals() -> Any:
    from models.report import ReportTotals

    return ReportTotals


class ModelLinks(ByName):
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

    model_config = ConfigDict(json_schema_extra=without_titles_of_references)

    id: str
    name: str
    source: Literal["reflectory", "torch"] = Field(
        description="what was sent: a checkpoint of ours, or a state dict of plain torch layers"
    )
    sha256: str = Field(description="of the stored checkpoint")
    size_bytes: int = Field(description="of the stored checkpoint")
    file_sha256: str = Field(description="of the file, as it was sent; it is not kept")
    file_size_bytes: int
    options: Annotated[dict[str, Any], DescribedBy(_options)]
    notes: tuple[str, ...] = Field(description="what was changed on the way to the checkpoint")
    architecture: Annotated[dict[str, Any], DescribedBy(_architecture)]
    signature: ModelSignature
    parameters: int = Field(description="the number of trainable parameters")
    created_at: datetime
    links: ModelLinks


class ModelDetail(ModelDocument):
    """An uploaded model with all its tensors, and what it could be tried on."""

    totals: Annotated[dict[str, int], DescribedBy(_totals)]
    rows: tuple[Annotated[dict[str, Any], DescribedBy(_row)], ...] = Field(
        description="each module followed by its own tensors"
    )
    fits: tuple[TaskFit, ...] = Field(
        description="the tasks, as they are by default, whose shapes are the model's"
    )


class ModelPage(Spec):
    """Uploaded models, newest first."""

    items: tuple[ModelDocument, ...]
    next_cursor: str | None
