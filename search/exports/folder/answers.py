"""Three raw samples with the model's own answers, and how far other runtimes may be from them."""

from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits

from models.errors import ExportError
from models.interface import Answer, Classes, Interface
from models.model import ModelSpec
from models.network import Network
from search.exports.folder.document import AnsweredSample, Example, MeanError, Vocabulary

SAMPLES: Final = 3
LOOKED_AT: Final = 256
"""Samples among which three are chosen, and that an interval of a mean error follows from."""

TOLERANCE: Final = 1e-4
ROUNDINGS: Final = 16.0
"""As `models.exports.onnx.verify` has them: a share of the largest output, and how many times the
model's own error of rounding is let pass beside it."""

_SMALLEST = 1e-6
_MOST_NUMBERS = 1 << 22
"""Outputs that are held at once."""
_UNKNOWN = "<unk>"


class Samples(Protocol):
    """Raw samples with what is right of each."""

    @property
    def x(self) -> Tensor:
        """`[N, *sample]`."""
        ...

    @property
    def y(self) -> Tensor:
        """`[N, ...]`: numbers of classes, numbers in their own unit, or 0 and 1 of labels."""
        ...

    @property
    def lengths(self) -> Tensor | None:
        """`[N]`: steps of each sample, where they differ."""
        ...


def example_of(
    network: nn.Module,
    spec: ModelSpec,
    interface: Interface,
    samples: Samples,
    *,
    level: str | None = None,
) -> Example:
    """Answer the first samples whose decisions no rounding could turn.

    Args:
        network: in evaluation or not; it is left as it is.
        spec: the network's.
        interface: from raw samples to answers.
        samples: raw ones, of validation data.
        level: `character` or `word` where tokens are read.

    Raises:
        ExportError: there is no sample, or the model's answers to all are no numbers.
    """
    x, lengths = samples.x[:LOOKED_AT], samples.lengths
    lengths = None if lengths is None else lengths[:LOOKED_AT]
    if len(x) == 0:
        raise ExportError("there is no raw sample to answer")
    answers = _answers(network, spec, interface, samples)
    chosen = [row for row in range(len(x)) if answers.is_sure(interface, row)]
    chosen = (chosen or [row for row in range(len(x)) if answers.is_finite(row)])[:SAMPLES]
    if not chosen:
        raise ExportError(f"the model's answers to all of {len(x)} raw samples are no numbers")
    whole = interface.preprocess(x[:1]).shape[1]
    steps = [whole] * len(x) if lengths is None else [int(n) for n in lengths]
    reads_tokens = not x.is_floating_point()
    every_step = spec.signature.output_steps == "every"
    return Example(
        interface=interface,
        reads_tokens=reads_tokens,
        recurrent=spec.architecture.any_length,
        every_step=every_step,
        samples=tuple(
            AnsweredSample(
                sample=_listed(_cut(x[row], interface, steps[row])),
                steps=steps[row],
                answer=_numbers(interface.answer.numbers(answers.single[row])),
                label=_label(interface, answers.single[row]),
                right=_right(interface, samples.y[row], steps[row], every_step=every_step),
                tolerance=answers.tolerance(interface, row),
            )
            for row in chosen
        ),
        initial_state=_initial_state(network),
        vocabulary=_vocabulary(interface, level) if reads_tokens else None,
        mean_error=_mean_error(answers.errors),
    )


class _Answers:
    """The last answers to samples `[N, out]`, in single and in double precision."""

    def __init__(self, single: Tensor, exact: Tensor, errors: Tensor | None) -> None:
        self.single, self.exact = single, exact
        self.errors = errors
        """Of each sample, what the metric is the mean of; None where it is no such mean."""

    def is_finite(self, row: int) -> bool:
        return bool(self.single[row].isfinite().all())

    def difference(self, row: int) -> float:
        """By how much another runtime's outputs may differ."""
        exact, single = self.exact[row], self.single[row]
        rounding = (single.double() - exact).abs().max()
        return float(TOLERANCE * exact.abs().max() + ROUNDINGS * rounding) or _SMALLEST

    def tolerance(self, interface: Interface, row: int) -> float:
        """The same of the answer's numbers."""
        difference = torch.full_like(self.exact[row], self.difference(row))
        numbers = interface.answer.numbers(self.exact[row])
        spread = float(interface.answer.spread(difference).max())
        return max(spread, _SMALLEST * float(numbers.abs().max()), _SMALLEST)

    def is_sure(self, interface: Interface, row: int) -> bool:
        """Whether no output that may pass decides otherwise."""
        if not self.is_finite(row):
            return False
        if not interface.answer.decides:
            return True
        difference = torch.full_like(self.exact[row], self.difference(row))
        return not bool(interface.answer.tied(self.exact[row], 2 * difference).any())


def _answers(
    network: nn.Module, spec: ModelSpec, interface: Interface, samples: Samples
) -> _Answers:
    state = {name: value.cpu() for name, value in network.state_dict().items()}
    same = [spec.build(seed=0).to(dtype).eval() for dtype in (torch.float32, torch.float64)]
    for one in same:
        one.load_state_dict(state)
    every_step = spec.signature.output_steps == "every"
    steps = spec.signature.sequence_length if every_step else 1
    rows = max(1, _MOST_NUMBERS // (steps * spec.signature.output_size))
    error = _ERRORS.get(interface.metric or "")
    last: tuple[list[Tensor], list[Tensor]] = ([], [])
    errors: list[Tensor] = []
    for start in range(0, min(len(samples.x), LOOKED_AT), rows):
        piece = slice(start, min(start + rows, LOOKED_AT))
        x, y = samples.x[piece], samples.y[piece]
        lengths = None if samples.lengths is None else samples.lengths[piece]
        read = interface.preprocess(x, lengths)
        for model, found in zip(same, last, strict=True):
            dtype = next(model.parameters()).dtype
            with torch.no_grad():
                output = model(read.to(dtype) if read.is_floating_point() else read, lengths)
            # Padded steps have no errors of their own: such a spread would be none of the samples.
            if model is same[0] and error is not None and not (every_step and interface.padded):
                errors.append(error(interface.answer, output, y).flatten(1).mean(dim=1))
            if every_step:
                ends = output.shape[1] if lengths is None else lengths
                output = output[torch.arange(len(output)), torch.as_tensor(ends) - 1]
            found.append(output)
    return _Answers(torch.cat(last[0]), torch.cat(last[1]), torch.cat(errors) if errors else None)


def _squares(answer: Answer, output: Tensor, y: Tensor) -> Tensor:
    found = answer.numbers(output)
    return (found - y.reshape(found.shape)).square()


def _surprises(answer: Answer, output: Tensor, y: Tensor) -> Tensor:
    del answer
    return binary_cross_entropy_with_logits(output, y.to(output.dtype), reduction="none")


_ERRORS: Mapping[str, Callable[[Answer, Tensor, Tensor], Tensor]] = {
    "mse": _squares,
    "bce": _surprises,
}
"""Metrics that are means over samples, and what they are the mean of, `[N, ...]`."""


def _cut(sample: Tensor, interface: Interface, steps: int) -> Tensor:
    """A sample without the padding behind its own steps."""
    return sample[:steps] if interface.padded else sample


def _listed(values: Tensor) -> Any:
    """Numbers as JSON has them, of as few digits as single precision needs."""
    if values.ndim > 0:
        return [_listed(one) for one in values]
    if not values.is_floating_point():
        return int(values)
    return None if values.isnan() else float(str(values.numpy()))


def _label(interface: Interface, output: Tensor) -> int | tuple[int, ...] | None:
    label = interface.answer.label(output)
    if label is None:
        return None
    return int(label) if label.ndim == 0 else tuple(int(one) for one in label)


def _right(
    interface: Interface, y: Tensor, steps: int, *, every_step: bool
) -> int | tuple[float, ...] | None:
    """What is right of a sample; of an answer at every step, after the last one."""
    if every_step and y.ndim > 0:
        y = y[min(steps, len(y)) - 1]
    if isinstance(interface.answer, Classes):
        # What is not asked for has a number below 0.
        return int(y) if y.ndim == 0 and int(y) >= 0 else None
    return _numbers(y)


def _numbers(values: Tensor) -> tuple[float, ...]:
    return tuple(float(str(one.numpy())) for one in values.float().flatten())


def _initial_state(network: nn.Module) -> dict[str, Any] | None:
    assert isinstance(network, Network)
    states = network.first_states()
    return {f"state_{part}": _listed(state.float()) for part, state in enumerate(states)} or None


def _vocabulary(interface: Interface, level: str | None) -> Vocabulary | None:
    if not isinstance(interface.answer, Classes) or level not in ("character", "word"):
        return None
    symbols = interface.answer.names
    unknown = symbols.index(_UNKNOWN) if _UNKNOWN in symbols else None
    return Vocabulary(level=level, symbols=symbols, unknown=unknown)


def _mean_error(errors: Tensor | None) -> MeanError | None:
    if errors is None or len(errors) < 2 or not bool(errors.isfinite().all()):
        return None
    return MeanError(samples=len(errors), deviation=float(errors.std()))
