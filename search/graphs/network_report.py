"""What is said of one compressed file and of each of its layers."""

from pydantic import Field

from models.graphs.fits import AnyChoice
from models.spec import Spec
from search.graphs.metrics import AnyMetric


class LayerReport(Spec):
    """One layer."""

    name: str
    operator: str = Field(description="that reads it first")
    shape: tuple[int, ...] = Field(description="of the weight in the file")
    bytes_before: int = Field(
        description="of its numbers in the original; where these are 16 bits that are read as 32, "
        "the layer takes twice as many bytes in files that leave it as it is"
    )
    bytes_after: int = Field(description="of its numbers; nodes and names are not in it")
    choice: AnyChoice
    compensated: bool = Field(description="whether columns made up for what others lost")
    local_error: float = Field(
        ge=0, description="share of the energy of the layer's outputs that is lost"
    )
    sensitivity: float = Field(
        ge=0, description="predicted loss of the network for each local error"
    )
    predicted_share: float = Field(ge=0, le=1, description="of the predicted loss of the file")
    multiply_adds_before: float = Field(description="for one sample")
    multiply_adds_after: float = Field(description="for one sample")


class MetricReport(Spec):
    """One metric in one part of the data."""

    metric: AnyMetric
    value: float
    original: float = Field(description="of the original's own answers")
    low: float | None = Field(
        description="of the 95 % interval over samples; null: the metric is no share"
    )
    high: float | None


class PartReport(Spec):
    """One part of the data."""

    samples: int
    metrics: tuple[MetricReport, ...] = Field(description="the one that was searched is the first")
    worst: tuple[int, ...] = Field(
        description="places (from 0) of the worst samples in the user's data, the worst one first"
    )


class TrainingReport(Spec):
    """How a file's numbers were trained further."""

    epochs: int = Field(ge=0, description="that were trained")
    best_epoch: int = Field(
        ge=0, description="after which the file was best on the choosing part; 0: untrained"
    )
    loss_before: float = Field(
        ge=0, description="of the metric on the choosing part, of the file as it was stored first"
    )
    loss_after: float = Field(ge=0, description="the same of the best epoch")


class NetworkReport(Spec):
    """One file."""

    layers: tuple[LayerReport, ...]
    bytes_before: int = Field(description="of the original file")
    bytes_after: int
    bytes_predicted: int = Field(description="before anything was fitted")
    multiply_adds_before: float = Field(description="for one sample, in the layers alone")
    multiply_adds_after: float
    predicted_loss: float
    choosing: PartReport = Field(description="the part that trials were chosen by")
    test: PartReport = Field(description="the part that nothing was chosen by")
    node_types: dict[str, int] = Field(description="nodes that run, after optimizations")
    warnings: tuple[str, ...]
    training: TrainingReport | None = Field(
        default=None,
        description="null: its numbers are those that the layers' choices were fitted with. Local "
        "errors are of the trained numbers, and what is predicted is of those before",
    )
