"""Whether a file answers as its checkpoint does, on the task's own raw samples.

The file is whatever can be called with raw samples. The reference is the checkpoint's network in
double precision; how far answers may be apart, `models.exports.comparison` tells.
"""

import copy
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

import torch
from pydantic import Field
from torch import Tensor

from models.checkpoint import LoadedModel
from models.errors import ExportError
from models.exports.comparison import ROUNDINGS, TOLERANCE, Bound
from models.interface import Interface
from models.model import ModelSpec
from models.network import Network
from models.spec import Spec
from search.tasks import Meter, RawSamples, Task

Run = Callable[[Tensor, Tensor | None], Mapping[str, Tensor]]
"""A file: raw samples `[B, *sample]` and the lengths of padded ones -> its `output`, and its
`label` where it decides something."""

OUTPUT: Final = "output"
LABEL: Final = "label"

SAME_METRIC: Final = 1e-6
"""How far a metric may be from the model's, as a share of it, beside those roundings."""

_MOST_ROWS = 256
_MOST_NUMBERS = 1 << 22
"""Outputs that are held at once."""


class Verification(Spec):
    """How a file was compared with its checkpoint."""

    runtime: str = Field(description="what ran the file")
    runtime_version: str
    inputs: Literal["validation", "random"] = Field(
        description="validation: raw samples of the task's validation split; random: normal "
        "numbers alone, of trials whose samples were not kept"
    )
    samples: int = Field(default=0, ge=0, description="raw samples that were compared")
    answers: int = Field(
        default=0, ge=0, description="decisions about them: one for each sample, step or label"
    )
    same: int = Field(default=0, ge=0, description="of these, decided as the model decides")
    ties: int = Field(
        default=0,
        ge=0,
        description="of these, decided otherwise where rounding decides; all others are the same",
    )
    metric: str | None = None
    value: float | None = Field(default=None, description="the metric of the file's answers")
    value_of_model: float | None = Field(
        default=None, description="of the model's; samples with ties are in neither"
    )
    largest_difference: float | None = Field(
        default=None, description="of the answers' numbers, in their own unit"
    )
    share_of_bound: float | None = Field(
        default=None, description="the largest difference as a share of what is let pass"
    )
    chunks: tuple[int, ...] = Field(
        default=(), description="steps of pieces that gave the same as a whole sequence"
    )


def on_random_inputs(runtime: str, runtime_version: str) -> Verification:
    """Of a file that was compared on normal numbers alone."""
    return Verification(runtime=runtime, runtime_version=runtime_version, inputs="random")


def deciding(numbers: Callable[[Tensor, Tensor | None], Tensor], interface: Interface) -> Run:
    """A file that gives the answers' numbers alone, with what they decide."""

    def run(x: Tensor, lengths: Tensor | None) -> Mapping[str, Tensor]:
        output = numbers(x, lengths)
        label = interface.answer.label(interface.answer.output(output))
        return {OUTPUT: output} if label is None else {OUTPUT: output, LABEL: label}

    return run


def around(network: Callable[[Tensor], Tensor], interface: Interface, spec: ModelSpec) -> Run:
    """A file of the network alone, with what stands around it; it knows nothing of lengths."""

    def numbers(raw: Tensor, lengths: Tensor | None) -> Tensor:
        x = interface.preprocess(raw, lengths)
        found = to_own_ends(lambda part: {OUTPUT: network(part)}, spec, x, lengths)
        return interface.answer.numbers(found[OUTPUT])

    return deciding(numbers, interface)


def to_own_ends(
    run: Callable[[Tensor], Mapping[str, Tensor]],
    spec: ModelSpec,
    x: Tensor,
    lengths: Tensor | None,
) -> Mapping[str, Tensor]:
    """What a file that knows nothing of lengths answers to samples `[B, T, ...]` cut to theirs."""
    every_step = spec.signature.output_steps == "every"
    if lengths is None or every_step or not spec.architecture.any_length:
        return run(x)
    found: dict[str, Tensor] = {}
    for length in sorted({int(length) for length in lengths}):
        same = lengths == length
        for name, part in run(x[same, :length]).items():
            whole = found.setdefault(name, part.new_empty(len(x), *part.shape[1:]))
            whole[same] = part
    return found


@torch.no_grad()
def verified(
    run: Run,
    model: LoadedModel,
    task: Task,
    samples: RawSamples,
    *,
    runtime: str,
    runtime_version: str,
) -> Verification:
    """Run a file on raw samples beside its model.

    Every decision has to be the model's, but where rounding decides; numbers have to be as near as
    the bound says, and the task's metric equal to 1e-6.

    Raises:
        ExportError: they are not; says what was found on which sample, and what is allowed.
    """
    interface = model.interface
    assert interface is not None, "raw samples come with an interface"
    comparison = _Comparison(model, interface, task)
    for piece in _pieces(samples, model):
        comparison.add(run(piece.x, piece.lengths), piece)
    return comparison.found(runtime, runtime_version)


@dataclass
class _Counts:
    """What adds up over batches."""

    samples: int = 0
    answers: int = 0
    same: int = 0
    ties: int = 0
    largest: float = 0.0
    share: float = 0.0
    own_rounding: float = 0.0
    """Of the metric: the most that it is for a batch."""
    meters: list[Meter] = field(default_factory=list[Meter])
    """Of the file and of the model."""
    measured: int = 0


class _Comparison:
    """A file beside its model, batch by batch."""

    def __init__(self, model: LoadedModel, interface: Interface, task: Task) -> None:
        network = model.module
        assert isinstance(network, Network)
        self._single = copy.deepcopy(network).float().eval()
        self._exact = copy.deepcopy(network).double().eval()
        self._interface = interface
        self._task = task
        self._counts = _Counts(meters=[task.meter(), task.meter()])

    def add(self, found: Mapping[str, Tensor], samples: RawSamples) -> None:
        """Compare the answers to a batch."""
        counts, answer, lengths = self._counts, self._interface.answer, samples.lengths
        x = self._interface.preprocess(samples.x, lengths)
        exact = self._exact(x.double() if x.is_floating_point() else x, lengths=lengths)
        single = self._single(x, lengths=lengths)
        own = None if lengths is None else torch.arange(x.shape[1]) < lengths[:, None]
        bound = Bound(exact, single, own=own)
        numbers = found[OUTPUT].double()
        allowed = answer.spread(bound.allowed)
        self._compare_numbers(numbers, answer.numbers(exact), bound.held, allowed)
        tied = self._compare_labels(found.get(LABEL), exact, bound.held, 2 * bound.allowed)
        counts.samples += len(samples.x)
        self._measure(numbers, exact, single, samples.y, tied)

    def found(self, runtime: str, runtime_version: str) -> Verification:
        """What was found, once the metrics were compared too."""
        counts, metric = self._counts, self._task.metric.name
        values: tuple[float | None, float | None] = (None, None)
        if counts.measured:
            value, right = (meter.values()[metric] for meter in counts.meters)
            allowed = SAME_METRIC * abs(right) + ROUNDINGS * counts.own_rounding
            if not (abs(value - right) <= allowed or (math.isnan(value) and math.isnan(right))):
                raise ExportError(
                    f"the file's {metric} on {counts.samples} raw validation samples is "
                    f"{value:.9g}; the model's is {right:.9g}, and allowed are {allowed:.3g} more "
                    "or less"
                )
            values = value, right
        return Verification(
            runtime=runtime,
            runtime_version=runtime_version,
            inputs="validation",
            samples=counts.samples,
            answers=counts.answers,
            same=counts.same,
            ties=counts.ties,
            metric=metric,
            value=values[0],
            value_of_model=values[1],
            largest_difference=counts.largest,
            share_of_bound=counts.share,
        )

    def _compare_numbers(
        self, found: Tensor, expected: Tensor, held: Tensor, allowed: Tensor
    ) -> None:
        counts = self._counts
        if found.shape != expected.shape:
            raise ExportError(
                f"the file gives {list(found.shape)} where the model gives {list(expected.shape)}"
            )
        differences = (found - expected).abs().nan_to_num(nan=torch.inf, posinf=torch.inf)
        differences = differences.where(held, 0)
        beyond = differences > allowed
        if beyond.any():
            place = tuple(map(int, beyond.nonzero()[0]))
            raise ExportError(
                f"on raw validation sample {counts.samples + place[0]} the file gives "
                f"{float(found[place]):.9g} where the model gives {float(expected[place]):.9g}; "
                f"allowed are {float(allowed.expand_as(found)[place]):.3g} more or less"
            )
        counts.largest = max(counts.largest, float(differences.max()))
        least = torch.finfo(torch.float64).tiny
        counts.share = max(counts.share, float((differences / allowed.clamp(min=least)).max()))

    def _compare_labels(
        self, told: Tensor | None, exact: Tensor, held: Tensor, difference: Tensor
    ) -> Tensor:
        """Which samples have an answer that rounding decides otherwise, `[B]`."""
        counts, answer = self._counts, self._interface.answer
        label = answer.label(exact)
        none = torch.zeros(len(exact), dtype=torch.bool)
        if label is None:
            return none
        if told is None or told.shape != label.shape:
            shape = None if told is None else list(told.shape)
            raise ExportError(f"the file decides {shape} where the model does {list(label.shape)}")
        counted = held if answer.each else held.all(dim=-1)
        differs = (told != label) & counted
        ties = differs & answer.tied(exact, difference)
        wrong = differs & ~ties
        if wrong.any():
            place = tuple(map(int, wrong.nonzero()[0]))
            raise ExportError(
                f"on raw validation sample {counts.samples + place[0]} the file decides "
                f"{self._name(told[place])} where the model decides {self._name(label[place])}; "
                f"{int(wrong.sum())} of {int(counted.sum())} such answers differ, and none may"
            )
        counts.answers += int(counted.sum())
        counts.same += int((counted & ~differs).sum())
        counts.ties += int(ties.sum())
        return ties.flatten(1).any(dim=1) if ties.ndim > 1 else ties

    def _name(self, label: Tensor) -> str:
        answer, number = self._interface.answer, int(label)
        is_name = not answer.each and 0 <= number < len(answer.names)
        return repr(answer.names[number]) if is_name else str(number)

    def _measure(
        self, numbers: Tensor, exact: Tensor, single: Tensor, y: Tensor, tied: Tensor
    ) -> None:
        """Add a batch's answers to the metrics, but for samples whose answers rounding decides."""
        if tied.all():
            return
        answer, counts = self._interface.answer, self._counts
        target = answer.target(y.double() if y.is_floating_point() else y)[~tied]
        # The model's numbers are rounded as a file's are, which have single precision.
        rounded = answer.numbers(single).double()
        outputs = [answer.output(n)[~tied] for n in (numbers, answer.numbers(exact), rounded)]
        of_batch: list[float] = []
        for output in outputs:
            meter = self._task.meter()
            meter.add(output, target)
            of_batch.append(meter.values()[self._task.metric.name])
        own = abs(of_batch[2] - of_batch[1])
        counts.own_rounding = max(counts.own_rounding, own if math.isfinite(own) else 0.0)
        for meter, output in zip(counts.meters, outputs, strict=False):
            meter.add(output, target)
        counts.measured += len(target)


def _pieces(samples: RawSamples, model: LoadedModel) -> Iterator[RawSamples]:
    """Batches whose outputs are not too many."""
    signature = model.spec.signature
    steps = signature.sequence_length if signature.output_steps == "every" else 1
    rows = max(1, min(_MOST_ROWS, _MOST_NUMBERS // (steps * signature.output_size)))
    for start in range(0, len(samples), rows):
        yield samples.between(start, start + rows)


def check_pieces(
    run: Callable[[Tensor, Sequence[Tensor]], tuple[Mapping[str, Tensor], Sequence[Tensor]]],
    model: LoadedModel,
    samples: RawSamples,
    *,
    exactly: bool = False,
) -> tuple[int, ...]:
    """Give sequences to a file in pieces, its state carried on, and compare with them as a whole.

    Args:
        run: a file: single steps `[B, T, ...]` and the states before them -> its answers, and the
            states after them. The first states are `Network.first_states()` for each sample.
        model: the checkpoint.
        samples: raw ones; the first few are taken, of the longest where lengths differ.
        exactly: whether all bits have to be the same; else the numbers, to `TOLERANCE`.

    Returns:
        The sizes of the pieces that were tried.

    Raises:
        ExportError: pieces do not give what the whole gives.
    """
    interface, network = model.interface, model.module
    assert interface is not None, "raw samples come with an interface"
    assert isinstance(network, Network)
    x = _few(interface, samples)
    steps = x.shape[1]
    first = first_states(network, len(x))
    whole, _ = run(x, first)
    sizes = tuple(sorted({size for size in (1, 7, steps - 7) if 1 <= size < steps}))
    for size in sizes:
        states: Sequence[Tensor] = first
        answers: list[Mapping[str, Tensor]] = []
        for piece in torch.split(x, size, dim=1):
            answer, states = run(piece, states)
            answers.append(answer)
        every = model.spec.signature.output_steps == "every"
        for name, right in whole.items():
            found = torch.cat([one[name] for one in answers], 1) if every else answers[-1][name]
            _compare_pieces(name, found, right, size=size, exactly=exactly or name == LABEL)
    return sizes


def first_states(network: Network, samples: int) -> list[Tensor]:
    """What a stream begins with, `[layers, samples, n]` each."""
    return [state.float()[:, None].repeat(1, samples, 1) for state in network.first_states()]


_FEW = 16


def single_steps(interface: Interface, x: Tensor) -> Tensor:
    """Raw samples `[B, *sample]` as steps `[B, T, ...]`: what concerns a whole sample is done."""
    for step in interface.inputs:
        if step.whole_sample:
            x = step.apply(x)
    return x


def _few(interface: Interface, samples: RawSamples) -> Tensor:
    """The first few samples of the longest."""
    x = single_steps(interface, samples.x)
    if samples.lengths is None:
        return x[:_FEW]
    longest = int(samples.lengths.max())
    return x[samples.lengths == longest][:_FEW, :longest]


def _compare_pieces(name: str, found: Tensor, right: Tensor, *, size: int, exactly: bool) -> None:
    allowed = 0.0 if exactly else TOLERANCE * float(right.abs().max())
    difference = float((found - right).abs().max())
    if found.shape != right.shape or not difference <= allowed:
        raise ExportError(
            f"pieces of {size} steps give another {name} than the whole: they are {difference:.3g} "
            f"apart; allowed are {allowed:.3g}"
        )
