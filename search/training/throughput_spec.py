"""How a study's models are measured: at what they will be deployed for."""

from typing import Literal

from pydantic import Field

from models.spec import Spec
from search.documents.runtimes import RUNTIME_KINDS, Mode, RuntimeName


class Throughput(Spec):
    """How throughput is measured: as the model will be deployed."""

    runtime: RuntimeName = Field(
        default="reflectory",
        description="what runs the model and its dense baseline: reflectory, this project's own "
        "kernels; onnxruntime, their ONNX files; c, their C files, compiled where it is measured, "
        "on one thread and one sample after the other; torch, plain torch.nn layers. GPUs and "
        "training are for reflectory and torch alone",
    )
    mode: Mode = Field(
        default="inference",
        description="what is timed: a forward pass, or one with gradients and the optimizer's step",
    )
    batch_size: int = Field(default=64, ge=1, le=65536, description="samples per call")
    sequence_length: int | None = Field(
        default=None, ge=1, le=1_000_000, description="steps; null: the task's own"
    )
    threads: int = Field(
        default=1, ge=1, le=1024, description="CPU threads of the measured process"
    )
    device: str | None = Field(
        default=None,
        max_length=200,
        description="the model of the measuring device; null: the first one's",
    )

    measure: Literal["needed", "all"] = Field(
        default="needed",
        description="which trials are measured. needed: the first shapes; then what a limit may "
        "refuse, before it trains, and what may be on the front, afterwards. The speed of others "
        "is predicted, and no front has predicted values. all: each before it trains",
    )

    @property
    def protocol(self) -> "Throughput":
        """How a shape is measured, whichever shapes are: equal ones give numbers that compare."""
        return self.model_copy(update={"measure": "needed"})

    @property
    def compiles(self) -> bool:
        """Whether it takes a C compiler where it is measured."""
        return RUNTIME_KINDS[self.runtime].compiles
