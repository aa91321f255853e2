"""Uploaded models as the API answers with them."""

from datetime import datetime
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import ConfigDict, Field

from models.graphs.documents import GraphFacts, LayerFacts
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
    checkpoint: str = Field(
        description="the stored file: safetensors of our own form, or ONNX as it was sent"
    )
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


class UploadedModel(Spec):
    """What is said of every uploaded model, whatever was sent."""

    model_config = ConfigDict(json_schema_extra=without_titles_of_references)

    id: str
    name: str
    sha256: str = Field(description="of the stored file")
    size_bytes: int = Field(description="of the stored file")
    file_sha256: str = Field(
        description="of the file, as it was sent; it is not kept, unless it is the stored one"
    )
    file_size_bytes: int
    notes: tuple[str, ...] = Field(description="what was changed on the way to the stored file")
    parameters: int = Field(description="the number of trainable parameters, or of all weights")
    created_at: datetime
    links: ModelLinks


class ModelDocument(UploadedModel):
    """A model of safetensors, stored as a checkpoint of our own form."""

    source: Literal["reflectory", "torch"] = Field(
        description="what was sent: a checkpoint of ours, or a state dict of plain torch layers"
    )
    options: Annotated[dict[str, Any], DescribedBy(_options)]
    architecture: Annotated[dict[str, Any], DescribedBy(_architecture)]
    signature: ModelSignature


class ModelDetail(ModelDocument):
    """An uploaded model with all its tensors, and what it could be tried on."""

    totals: Annotated[dict[str, int], DescribedBy(_totals)]
    rows: tuple[Annotated[dict[str, Any], DescribedBy(_row)], ...] = Field(
        description="each module followed by its own tensors"
    )
    fits: tuple[TaskFit, ...] = Field(
        description="the tasks, as they are by default, whose shapes are the model's"
    )


class NetworkDocument(UploadedModel):
    """A network of an ONNX file, stored as it was sent."""

    source: Literal["onnx"] = Field(description="what was sent")
    graph: GraphFacts = Field(description="with its constants folded, unless there is a reason")
    kept_because: str | None = Field(description="why its constants are not folded; null: they are")


class NetworkDetail(NetworkDocument):
    """A network of an ONNX file with the weights that can be compressed."""

    layers: tuple[LayerFacts, ...] = Field(description="in the order of the nodes that read them")


AnyModelDocument: TypeAlias = Annotated[
    ModelDocument | NetworkDocument, Field(discriminator="source")
]
AnyModelDetail: TypeAlias = Annotated[ModelDetail | NetworkDetail, Field(discriminator="source")]


class ModelPage(Spec):
    """Uploaded models, newest first."""

    items: tuple[AnyModelDocument, ...]
    next_cursor: str | None
