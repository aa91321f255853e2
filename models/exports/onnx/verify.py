"""Whether an ONNX file computes what its model computes."""

import copy
from collections.abc import Iterator, Mapping

import torch
from torch import Tensor, nn

from models.errors import ExportError
from models.example_input import example_input
from models.exports.onnx.export import (
    NEXT_STATE,
    OUTPUT,
    PLAIN,
    STATE,
    FileOptions,
    in_double_precision,
)
from models.exports.onnx.interface import LABEL
from models.exports.onnx.runtime import Session
from models.math.initialisation import generator_of
from models.model import ModelSpec
from models.network import Network

TOLERANCE = 1e-4
"""Largest difference as a share of the largest output.

A thousand roundings of single precision: what a hundred steps and the runtime's own approximations
of sigmoid and tanh add up to stays below, and what an element of a matrix adds does not.
"""
ROUNDINGS = 16.0
"""How many times the model's own error, which a recurrence may let grow, is let pass beside it."""
LONGEST = 64
BATCH = 8

# On the way to an output numbers are larger than it.
_LARGEST = 1e-6 * torch.finfo(torch.float32).max


def verify(
    content: bytes, network: nn.Module, spec: ModelSpec, options: FileOptions = PLAIN
) -> float:
    """Run an exported file in onnxruntime beside the model in evaluation, on normal inputs.

    A batch of 8 and its first sample alone are tried at two lengths: that of the signature, at most
    64, and one more than twice that; a feed-forward model has but its own, and so has a file whose
    samples are flat. Samples that are padded
    get lengths of their own; a stream is given in two pieces, from its first state on. The outputs
    may differ from those of the model in double precision by `TOLERANCE` of the largest one of the
    batch so far, plus `ROUNDINGS` times what those of the model in single precision do. What is
    about to leave the range of single precision is not compared. What is decided has to be the
    same, but where that difference decides.

    Returns:
        The largest difference found, as a share of what is let pass.

    Raises:
        ExportError: they differ by more, or the file cannot be run.
    """
    every_step = spec.signature.output_steps == "every"
    exact = in_double_precision(network, spec)
    check = _Check(Session(content), exact, options, every_step=every_step)
    return max(max(check.shares(x)) for x in _inputs(spec, options))


class _Check:
    """A file beside its model."""

    def __init__(
        self, session: Session, exact: Network, options: FileOptions, *, every_step: bool
    ) -> None:
        self.session = session
        self.exact = exact
        self.single = copy.deepcopy(exact).float()
        self.options = options
        self.every_step = every_step

    @torch.no_grad()
    def shares(self, x: Tensor) -> Iterator[float]:
        """The largest differences on a batch of samples as the network reads them."""
        interface = self.options.interface
        lengths = None
        raw = x
        if interface is not None:
            if interface.padded and not self.options.stream:
                lengths = 1 + torch.arange(len(x)) % x.shape[1]
            # A stream is given single steps, of which the others know nothing.
            steps = [
                step for step in interface.inputs if not (self.options.stream and step.whole_sample)
            ]
            view = interface.model_copy(update={"inputs": tuple(steps)})
            raw = view.raw(x)
            x = view.preprocess(raw, lengths)
        expected = self.exact(x.double() if x.is_floating_point() else x, lengths=lengths)
        rounded = self.single(x, lengths=lengths).double()
        held = (expected.abs() < _LARGEST) & rounded.isfinite()
        if lengths is not None and expected.ndim > 2:
            own = torch.arange(x.shape[1]) < lengths.unsqueeze(1)
            held &= own.unsqueeze(2)
        if not held.any():
            raise ExportError(f"on {list(raw.shape)} the model gives no number to compare with")
        scale = _largest(expected, held)
        allowed = TOLERANCE * scale + ROUNDINGS * _largest(rounded - expected, held)
        for batch in (BATCH, 1):
            found = self._run(raw[:batch], None if lengths is None else lengths[:batch])
            yield self._compare(found, expected[:batch], held[:batch], allowed)

    def _run(self, raw: Tensor, lengths: Tensor | None) -> Mapping[str, Tensor]:
        if not self.options.stream:
            return self.session.run(raw, lengths)
        middle = raw.shape[1] // 2
        pieces = [raw] if middle == 0 else [raw[:, :middle], raw[:, middle:]]
        states = [
            first.float().unsqueeze(1).repeat(1, len(raw), 1) for first in self.exact.first_states()
        ]
        answers: list[Mapping[str, Tensor]] = []
        for piece in pieces:
            named = {STATE.format(part): state for part, state in enumerate(states)}
            answers.append(self.session.run(piece, None, named))
            states = [answers[-1][NEXT_STATE.format(part)] for part in range(len(states))]
        if not self.every_step:
            return answers[-1]
        names = [name for name in (OUTPUT, LABEL) if name in answers[-1]]
        return {name: torch.cat([one[name] for one in answers], dim=1) for name in names}

    def _compare(
        self, found: Mapping[str, Tensor], expected: Tensor, held: Tensor, allowed: Tensor
    ) -> float:
        """The largest difference as a share of what is allowed, where outputs are compared."""
        interface = self.options.interface
        if interface is None:
            return _share(found[OUTPUT].double(), expected, held, allowed)
        answer = interface.answer
        share = _share(
            found[OUTPUT].double(), answer.numbers(expected), held, answer.spread(allowed)
        )
        label = answer.label(expected)
        if label is not None:
            told = found[LABEL]
            if told.shape != label.shape:
                raise ExportError(
                    f"the ONNX file decides {list(told.shape)} where the model decides "
                    f"{list(label.shape)}"
                )
            wrong = (told != label) & ~answer.tied(expected, 2 * allowed)
            wrong &= held if answer.each else held.all(dim=-1)
            if wrong.any():
                raise ExportError(
                    f"the ONNX file decides otherwise than the model on {int(wrong.sum())} of "
                    f"{wrong.numel()} samples"
                )
        return share


def _largest(values: Tensor, held: Tensor) -> Tensor:
    """The largest magnitude of a batch `[B, ..., out]`, up to each step if there are several."""
    largest = values.abs().where(held, 0).amax(dim=(0, -1), keepdim=True)
    return largest.cummax(dim=1).values


def _share(found: Tensor, expected: Tensor, held: Tensor, allowed: Tensor) -> float:
    if found.shape != expected.shape:
        raise ExportError(
            f"the ONNX file gives {list(found.shape)} where the model gives {list(expected.shape)}"
        )
    # What is no number in the file alone differs without bound.
    differences = (found - expected).abs().nan_to_num(nan=torch.inf, posinf=torch.inf)
    differences = differences.where(held, 0)
    wrong = differences > allowed
    if wrong.any():
        raise ExportError(
            f"the ONNX file differs from the model by {differences.max():.3g} at outputs of shape "
            f"{list(found.shape)}; allowed is {allowed.max():.3g}"
        )
    return float((differences / allowed.clamp(min=torch.finfo(allowed.dtype).tiny)).max())


def _inputs(spec: ModelSpec, options: FileOptions) -> Iterator[Tensor]:
    signature, interface = spec.signature, options.interface
    # A sample that is laid out in steps has as many as it has numbers for.
    is_laid_out = interface is not None and any(step.whole_sample for step in interface.inputs)
    lengths = [signature.sequence_length]
    if spec.architecture.any_length and (options.stream or not is_laid_out):
        first = min(signature.sequence_length, LONGEST)
        lengths = [first, 2 * first + 1]
    generator = generator_of(0)
    for steps in lengths:
        yield example_input(signature, batch=BATCH, steps=steps, generator=generator)
