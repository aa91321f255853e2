"""Hard limits on a configuration: what is known of a model before it is trained."""

from collections.abc import Iterator, Mapping
from typing import Protocol

from pydantic import Field

from models.model import ModelSpec
from models.report import model_totals
from models.spec import Spec
from search.documents.objectives import Objective
from search.graphs.network_trial import NetworkTrial

_NUMBER_BYTES = 4


class Limits(Spec):
    """Hard limits: a configuration beyond one is refused before it is trained."""

    parameters: int | None = Field(
        default=None, ge=1, le=10**18, description="most parameters a model may have"
    )
    multiply_adds: int | None = Field(
        default=None,
        ge=1,
        le=10**18,
        description="most multiply-adds of matrix products per sample and step, as reports count",
    )
    memory_bytes: int | None = Field(
        default=None,
        ge=1,
        le=10**18,
        description="most bytes that parameters and buffers take together, as reports count; what "
        "training needs beside them is not counted",
    )
    min_throughput_ratio: float | None = Field(
        default=None,
        gt=0,
        description="least measured throughput, as a ratio to the dense baseline's",
    )
    agreement: float | None = Field(
        default=None,
        gt=0,
        le=1,
        description="least share of the original's decisions on validation data that a compressed "
        "network keeps, for the task model_outputs; what keeps fewer is stored and on no front",
    )
    bytes: int | None = Field(
        default=None,
        ge=1,
        le=10**18,
        description="most bytes that the file in `export` may have; of a C file, its tables",
    )
    state_bytes: int | None = Field(
        default=None,
        ge=1,
        le=10**18,
        description="most bytes that a model may keep of one sample from a step to the next, in "
        "single precision; 0 for models without a state. Where the file in `export` is `c`: the "
        "size of its struct, in which a step is computed, too",
    )
    latency_seconds: float | None = Field(
        default=None,
        gt=0,
        description="longest measured call at `throughput.batch_size`, in seconds: 99 of 100 are "
        "as short",
    )

    @property
    def are_on_speed(self) -> bool:
        """Whether one of them takes a measurement to know whether it holds."""
        return self.min_throughput_ratio is not None or self.latency_seconds is not None


class MeasuredValues(Protocol):
    """What is known of a trial that was drawn, and maybe measured."""

    @property
    def parameters(self) -> int:
        """All trainable numbers."""
        ...

    @property
    def bytes(self) -> int | None:
        """Of the file that a user takes away."""
        ...

    @property
    def throughput_ratio(self) -> float | None:
        """To the dense baseline's."""
        ...

    @property
    def latency_p99(self) -> float | None:
        """Seconds of one call."""
        ...


def excesses(
    limits: Limits, model: ModelSpec, *, file_bytes: int | None = None, state: int | None = None
) -> Iterator[tuple[str, float]]:
    """Each limit that a model is over: the sentence that says so, and the relative excess.

    The model is laid out without memory where a closed formula does not give the number.

    Args:
        limits: the study's.
        model: what was drawn.
        file_bytes: the size of the file that a user takes away, where there is a limit on it.
        state: bytes that the file keeps of a sample; null: as many as the model.

    Raises:
        SpecError: the model cannot be built.
    """
    found: list[tuple[str, int, int | None]] = [
        ("parameters", model.parameter_count(), limits.parameters)
    ]
    if limits.multiply_adds is not None or limits.memory_bytes is not None:
        totals = model_totals(model)
        found += [
            ("multiply-adds per sample and step", totals.multiply_adds, limits.multiply_adds),
            ("bytes of parameters and buffers", totals.size_bytes, limits.memory_bytes),
        ]
    if file_bytes is not None:
        found.append(("bytes of the file", file_bytes, limits.bytes))
    kept = state_bytes(model) if state is None else state
    found.append(("bytes of state", kept, limits.state_bytes))
    for what, value, limit in found:
        if limit is not None and value > limit:
            yield f"{value} {what} are over the limit of {limit}", value / limit - 1


def excesses_of_a_network(limits: Limits, trial: NetworkTrial) -> Iterator[tuple[str, float]]:
    """The same of a network whose layers are stored anew."""
    found: tuple[tuple[str, int, int | None], ...] = (
        ("parameters", trial.parameters, limits.parameters),
        ("bytes of the file", trial.bytes, limits.bytes),
    )
    for what, value, limit in found:
        if limit is not None and value > limit:
            yield f"{value} {what} are over the limit of {limit}", value / limit - 1


def disagreeing(limits: Limits, agreement: float | None) -> tuple[str, float] | None:
    """The limit on agreement that a network's file breaks, as `excesses` has them."""
    least = limits.agreement
    if least is None or agreement is None or agreement >= least:
        return None
    sentence = f"agreement {agreement:.4g} on validation data is under the limit of {least:g}"
    return sentence, least - agreement


def state_bytes(model: ModelSpec) -> int:
    """What a model has to keep of one sample from a step to the next, in single precision."""
    return _NUMBER_BYTES * model.architecture.state_numbers()


def slow(limits: Limits, trial: MeasuredValues) -> Iterator[tuple[str, float]]:
    """Each limit on speed that a measured trial breaks, as `excesses` has them."""
    least, ratio = limits.min_throughput_ratio, trial.throughput_ratio
    if least is not None and ratio is not None and ratio < least:
        sentence = f"throughput ratio {ratio:.3g} is under min_throughput_ratio {least:g}"
        yield sentence, least / ratio - 1
    most, latency = limits.latency_seconds, trial.latency_p99
    if most is not None and latency is not None and latency > most:
        sentence = f"a latency of {latency:.3g} s (p99) is over latency_seconds {most:g}"
        yield sentence, latency / most - 1


def most_allowed(limits: Limits, objective: Objective) -> float | None:
    """The limit on an objective that is to be small; null where there is none."""
    most: Mapping[Objective, float | None] = {
        "parameters": limits.parameters,
        "bytes": limits.bytes,
        "latency": limits.latency_seconds,
    }
    return most.get(objective)


def margins(limits: Limits, trial: MeasuredValues) -> list[float]:
    """By how much a trial is over each limit whose value is known of it; below 0 it keeps it."""
    pairs = (
        (trial.parameters, limits.parameters),
        (trial.bytes, limits.bytes),
        (limits.min_throughput_ratio, trial.throughput_ratio),
        (trial.latency_p99, limits.latency_seconds),
    )
    return [value / most - 1 for value, most in pairs if value is not None and most]
