"""Three raw samples with the model's own answers, and how far other runtimes may be from them."""

from typing import Any, Final, Protocol

import torch
from torch import Tensor, nn

from models.errors import ExportError
from models.interface import Classes, Interface, Numbers
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
_EVERY_STEP = 3
"""Dimensions of an output that has an answer at every step."""
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
    read = interface.preprocess(x, lengths)
    answers = _answers(network, spec, read, lengths)
    chosen = [row for row in range(len(x)) if answers.is_sure(interface, row)]
    chosen = (chosen or [row for row in range(len(x)) if answers.is_finite(row)])[:SAMPLES]
    if not chosen:
        raise ExportError(f"the model's answers to all of {len(x)} raw samples are no numbers")
    steps = [read.shape[1]] * len(x) if lengths is None else [int(n) for n in lengths]
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
        mean_error=_mean_error(interface, answers.every, samples.y[:LOOKED_AT]),
    )


class _Answers:
    """The last answers to samples `[N, out]`, in single and in double precision.

    `every` are all there are in single precision, `[N, ..., out]`.
    """

    def __init__(self, single: Tensor, exact: Tensor, *, every: Tensor) -> None:
        self.single, self.exact, self.every = single, exact, every

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


def _answers(network: nn.Module, spec: ModelSpec, read: Tensor, lengths: Tensor | None) -> _Answers:
    state = {name: value.cpu() for name, value in network.state_dict().items()}
    found: list[Tensor] = []
    whole: list[Tensor] = []
    for dtype in (torch.float32, torch.float64):
        same = spec.build(seed=0).to(dtype).eval()
        same.load_state_dict(state)
        with torch.no_grad():
            output = same(read.to(dtype) if read.is_floating_point() else read, lengths)
        whole.append(output)
        if output.ndim == _EVERY_STEP:
            ends = output.shape[1] if lengths is None else lengths
            output = output[torch.arange(len(output)), torch.as_tensor(ends) - 1]
        found.append(output)
    return _Answers(*found, every=whole[0])


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


def _mean_error(interface: Interface, output: Tensor, y: Tensor) -> MeanError | None:
    """The spread of squared errors, where they are what the metric is the mean of."""
    if not isinstance(interface.answer, Numbers) or interface.metric != "mse" or len(y) < 2:
        return None
    found = interface.answer.numbers(output)
    errors = (found - y.reshape(found.shape)).square().flatten(1).mean(dim=1)
    if not bool(errors.isfinite().all()):
        return None
    return MeanError(samples=len(errors), deviation=float(errors.std()))
