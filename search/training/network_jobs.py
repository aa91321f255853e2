"""What attempts of a study that compresses a network of others are given to do."""

from collections.abc import Mapping
from typing import Literal

from pydantic import Field

from models.spec import Spec, kind_of
from search.documents.runtimes import Mode, RuntimeName
from search.graphs.metrics import METRICS
from search.graphs.model_outputs import ModelOutputs
from search.graphs.network_trial import NetworkTrial
from search.graphs.picks import Objective
from search.tasks import Range

COMPRESSED = "onnx"
"""The role under which a trial's file is stored: where others have one that was made of theirs."""


class PrepareNetworkJob(Spec):
    """Read the network and its data, and find out what each pick of each layer would lose.

    The study begins when it has succeeded.
    """

    kind: Literal["prepare_network"] = "prepare_network"
    task: ModelOutputs
    costs: tuple[Objective, ...] = Field(description="what files may cost")


class NetworkShape(Spec):
    """One thing to measure: a trial's file, named by its shape key."""

    trial: int = Field(ge=0)
    shape_key: str
    network: NetworkTrial

    def parameter_count(self) -> int:
        """Numbers that the file stores in its weights."""
        return self.network.parameters

    def dense_parameter_count(self) -> int:
        """Those of the original."""
        return self.network.dense_parameters


class MeasureNetworkJob(Spec):
    """Measure several files in a row, alone on the device, each in turn with the original."""

    kind: Literal["measure_network"] = "measure_network"
    task: ModelOutputs
    costs: tuple[Objective, ...] = Field(description="as the study was prepared for")
    shapes: tuple[NetworkShape, ...]
    latency: bool = Field(default=False, description="whether single calls are timed as well")
    batch_size: int = Field(ge=1, description="samples in a call")
    threads: int = Field(default=1, ge=1)
    device: str | None = Field(default=None, description="the model of the device to measure on")

    @property
    def mode(self) -> Mode:
        """Nothing is trained."""
        return "inference"

    @property
    def runtime(self) -> RuntimeName:
        """What runs ONNX files."""
        return "onnxruntime"


class EvaluateJob(Spec):
    """Make one trial's file, trained where it has `fine_tune`, and answer the user's samples."""

    kind: Literal["evaluate"] = "evaluate"
    task: ModelOutputs
    trial: NetworkTrial
    number: int = Field(ge=0)
    costs: tuple[Objective, ...] = Field(description="as the study was prepared for")
    sensitivities: Mapping[str, tuple[float, float]] = Field(
        description="by layer, loss for each local error with compensated and with plain rounding"
    )

    @property
    def first_epoch(self) -> int:
        """0: the file as it is before anything is trained."""
        return 0

    @property
    def last_epoch(self) -> int:
        """The last one that its numbers are trained for; 0: nothing is."""
        return self.trial.epochs

    @property
    def may_end_early(self) -> bool:
        """All epochs are trained."""
        return False

    @property
    def needed_roles(self) -> tuple[str, ...]:
        """What has to be stored of a complete trial."""
        return (COMPRESSED, "report")

    @property
    def ranges(self) -> Mapping[str, Range]:
        """Which values each metric can have, by name."""
        return {kind_of(one): Range(*one.span) for one in METRICS}
