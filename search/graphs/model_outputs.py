"""The task of a study that compresses a network of others: its answers to a user's data."""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Literal, Self, TypeAlias

import numpy as np
from pydantic import BeforeValidator, Field

from models.graphs.documents import GraphPort
from models.spec import Spec
from search.documents.catalog import Metric
from search.documents.datasets import ArrayPort
from search.errors import TaskUnresolved
from search.graphs.fine_tune import FineTune
from search.graphs.metrics import DEFAULT_SHARES, AnyMetric, Kl
from search.graphs.network_data import NetworkSamples, count_samples, network_samples

MOST_INPUTS = 256
_UNITS: Mapping[str, str] = {"kl": "nats"}
_WORST_LOSS = 1.0
"""A relative error of 1 is that of zeros; a divergence of a nat is a network that is broken."""

_Row: TypeAlias = tuple[float, ...]
FixedNumbers: TypeAlias = float | _Row | tuple[_Row, ...] | tuple[tuple[_Row, ...], ...]
"""A number, or rows of numbers, of up to three axes."""

_Id = Annotated[str, Field(pattern="^[A-Za-z0-9_-]{1,64}$")]


def _named(metric: object) -> object:
    """A metric's kind stands for the metric with its defaults."""
    return {"kind": metric} if isinstance(metric, str) else metric


class NetworkTaskFacts(Spec):
    """What follows from the two uploads when a study is submitted."""

    sha256: str = Field(pattern="^[0-9a-f]{64}$", description="of the network's file")
    data_sha256: str = Field(pattern="^[0-9a-f]{64}$", description="of the data as they are stored")
    inputs: tuple[GraphPort, ...] = Field(description="those that samples or zeros are fed to")
    file_bytes: int = Field(ge=1, description="of the network's file")
    weight_bytes: int = Field(ge=0, description="of all its weights")
    parameters: int = Field(ge=0, description="numbers of all its weights")
    data_bytes: int = Field(ge=0, description="of all arrays")
    metric: AnyMetric = Field(description="what is compared, where the task names none")


class ModelOutputs(Spec):
    """Keep the answers of a network, an uploaded ONNX file, to a user's own data.

    Each trial is the network with its layers stored anew: in fewer bits, as products of low rank,
    or both. The original is trial 0, and what is compared are answers: no labels are needed.
    Results are valid for data like the data given.
    """

    title: ClassVar[str] = "Outputs of an uploaded network"
    paper: ClassVar[str] = "Frantar et al.: GPTQ, arXiv:2210.17323 (how rounding is compensated)"

    kind: Literal["model_outputs"] = "model_outputs"
    model: _Id = Field(description="the network: what /v1/models answered to the .onnx file")
    data: _Id = Field(
        description="its inputs: what /v1/datasets answered to an .npz that holds arrays, one for "
        "each input, samples first"
    )
    inputs: dict[str, str] = Field(
        default_factory=dict[str, str],
        max_length=MOST_INPUTS,
        description="by input, the name of its array; an input that is not named here has the "
        "array of its own name",
    )
    outputs: tuple[str, ...] | None = Field(
        default=None,
        min_length=1,
        max_length=MOST_INPUTS,
        description="the outputs that are compared; null: all",
    )
    fixed: dict[str, FixedNumbers] = Field(
        default_factory=dict[str, FixedNumbers],
        max_length=MOST_INPUTS,
        description="inputs that become constants, with their values: "
        '`{"sr": 16000}`. The files that come of it have no such inputs any more',
    )
    zeros: tuple[str, ...] = Field(
        default=(), max_length=MOST_INPUTS, description="inputs that are fed zeros"
    )
    each: bool = Field(
        default=False,
        description="whether each sample is fed as it is, all axes included; else the first axis "
        "of every input is that of the samples, and some are fed at once",
    )
    compare_by: Annotated[AnyMetric | None, BeforeValidator(_named)] = Field(
        default=None,
        description="how answers are compared, by name or in full: `kl` of probabilities (with "
        '`{"kind": "kl", "logits": true}` of logits), `agreement` of decisions, `relative_error`, '
        "`cosine`, `labels` or `ctc_string`. Null: `kl` where the network ends in probabilities, "
        "else `relative_error`",
    )
    labels: str | None = Field(
        default=None,
        max_length=1000,
        description="the array with each sample's right classes, whole numbers; null: there are "
        "none, and nothing is called accuracy",
    )
    split: tuple[float, float, float] = Field(
        default=DEFAULT_SHARES,
        description="shares of the samples for calibration, for choosing and for the test, by "
        "which nothing is chosen; they sum to 1",
    )
    split_seed: int = Field(default=0, ge=0, lt=2**32, description="of the drawing of the parts")
    fine_tune: FineTune | None = Field(
        default=None,
        description="how points of the front are trained further when the search is over, beyond "
        "`budget.trials` and within the other budgets, each as a trial of its own. Null: nothing "
        "is trained",
    )
    facts: NetworkTaskFacts | None = Field(
        default=None,
        description="what follows from the uploads; filled in when a study is submitted",
    )

    @classmethod
    def example(cls) -> Self:
        """A resolved document, for the catalog; its files need not be there."""
        facts = NetworkTaskFacts(
            sha256="0" * 64,
            data_sha256="0" * 64,
            inputs=(GraphPort(name="input", type="float32", shape=("batch", 16)),),
            file_bytes=1,
            weight_bytes=1,
            parameters=1,
            data_bytes=1,
            metric=Kl(),
        )
        return cls(model="0123456789ab", data="0123456789ab", facts=facts)

    @property
    def known(self) -> NetworkTaskFacts:
        """What follows from the uploads.

        Raises:
            TaskUnresolved: nobody looked at them yet.
        """
        if self.facts is None:
            raise TaskUnresolved(f"the network {self.model} and its data were not looked at")
        return self.facts

    @property
    def compared_by(self) -> AnyMetric:
        """The metric of the search.

        Raises:
            TaskUnresolved: it follows from the network, which nobody looked at yet.
        """
        return self.compare_by or self.known.metric

    @property
    def metric(self) -> Metric:
        """The same as other tasks have it; the baseline is that of a network that is broken.

        Raises:
            TaskUnresolved: see `compared_by`.
        """
        metric = self.compared_by
        return Metric(
            name=metric.kind,
            direction=metric.direction,
            unit=_UNITS.get(metric.kind, ""),
            baseline=_WORST_LOSS if metric.direction == "minimize" else 0.0,
        )

    @property
    def array_names(self) -> tuple[str, ...]:
        """The arrays that are read, each once."""
        fed = [
            self.inputs.get(port.name, port.name)
            for port in self.known.inputs
            if port.name not in self.zeros
        ]
        return tuple(dict.fromkeys(fed if self.labels is None else [*fed, self.labels]))

    def samples(self, arrays: Mapping[str, np.ndarray[Any, Any]]) -> NetworkSamples:
        """The network's samples in their three parts, of the data's arrays.

        Raises:
            SpecRefused: an array is missing or does not fit its input, at `task.inputs.NAME`, or
                there are too few samples.
        """
        return network_samples(
            self.known.inputs,
            self._by_input(arrays),
            each=self.each,
            zeros=self.zeros,
            shares=self.split,
            seed=self.split_seed,
        )

    def refuse_misfits(self, arrays: Mapping[str, ArrayPort], samples: int) -> None:
        """Hold the shapes of the data against the network's inputs, without the data.

        Raises:
            SpecRefused: see `samples`.
        """
        # One number stands for all: an array of any size takes no memory so.
        shapes = {
            name: np.broadcast_to(np.zeros((), port.type), (samples, *port.shape))
            for name, port in arrays.items()
        }
        count_samples(
            self.known.inputs,
            self._by_input(shapes),
            each=self.each,
            zeros=self.zeros,
            shares=self.split,
        )

    def _by_input(self, arrays: Mapping[str, np.ndarray[Any, Any]]) -> dict[str, Any]:
        """The data's arrays by the inputs that they are for, those of unknown inputs as well."""
        ports = {port.name for port in self.known.inputs}
        fed = {
            name: arrays[array]
            for name in ports
            if (array := self.inputs.get(name, name)) in arrays and name not in self.zeros
        }
        unknown = {name: arrays[one] for name, one in self.inputs.items() if name not in ports}
        return {**fed, **unknown}
