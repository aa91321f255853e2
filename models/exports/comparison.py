"""What a file may differ from its model by, whatever its format."""

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from models.errors import ExportError
from models.example_input import example_input
from models.interface import Answer
from models.math.initialisation import generator_of
from models.model import ModelSpec
from models.network import Network

TOLERANCE = 1e-4
"""Largest difference as a share of the largest output.

A thousand roundings of single precision: what a hundred steps and a runtime's own approximations
of sigmoid and tanh add up to stays below, and what an element of a matrix adds does not.
"""
ROUNDINGS = 16.0
"""How many times the model's own error, which a recurrence may let grow, is let pass beside it."""
LONGEST = 64
BATCH = 8

# On the way to an output numbers are larger than it.
_LARGEST = 1e-6 * torch.finfo(torch.float32).max


def in_double_precision(network: nn.Module, spec: ModelSpec) -> Network:
    """The same model with numbers of double precision, for evaluation, on the CPU."""
    exact = spec.build(seed=0).double().eval()
    exact.load_state_dict({name: value.cpu() for name, value in network.state_dict().items()})
    return exact


def normal_inputs(spec: ModelSpec, *, own_length: bool = False) -> Iterator[Tensor]:
    """Batches of 8 at two lengths: the signature's, at most 64, and one more than twice that.

    A feed-forward model has but its own length, and so has one whose raw samples are all of one
    size (`own_length`).
    """
    signature = spec.signature
    lengths = [signature.sequence_length]
    if spec.architecture.any_length and not own_length:
        first = min(signature.sequence_length, LONGEST)
        lengths = [first, 2 * first + 1]
    generator = generator_of(0)
    for steps in lengths:
        yield example_input(signature, batch=BATCH, steps=steps, generator=generator)


class Bound:
    """What a file's outputs may differ from those of a model by.

    `TOLERANCE` of the largest output of the batch so far, plus `ROUNDINGS` times what the model in
    single precision differs by. What is about to leave the range of single precision is not
    compared.

    Raises:
        ExportError: the model gives no number to compare with.
    """

    def __init__(
        self,
        expected: Tensor,
        rounded: Tensor,
        *,
        answer: Answer | None = None,
        own: Tensor | None = None,
    ) -> None:
        """Compare with outputs `[B, ..., out]` of the model in double and in single precision.

        Args:
            expected: in double precision.
            rounded: in single precision.
            answer: what the file makes of its network's output; None: it gives that as it is.
            own: `[B, T]`, the steps that are a sample's own; None: all are.
        """
        held = (expected.abs() < _LARGEST) & rounded.isfinite()
        if own is not None and expected.ndim > 2:
            held &= own.unsqueeze(2)
        if not held.any():
            raise ExportError(f"at {list(expected.shape)} the model gives no number to compare")
        error = _largest(rounded.double() - expected, held)
        self.allowed = TOLERANCE * _largest(expected, held) + ROUNDINGS * error
        """How far outputs may be apart, `[1, ..., 1]`, or `[1, T, 1]`."""
        self.held = held
        """Which outputs `[B, ..., out]` are compared."""
        self._expected, self._answer = expected, answer

    def share(self, found: Tensor, file: str) -> float:
        """The largest difference of answers of the batch's first samples, as a share of the bound.

        Raises:
            ExportError: it is above 1; `file` is what the message calls the file.
        """
        expected, held, allowed = (
            self._expected[: len(found)],
            self.held[: len(found)],
            self.allowed,
        )
        if self._answer is not None:
            expected, allowed = self._answer.numbers(expected), self._answer.spread(allowed)
        if found.shape != expected.shape:
            raise ExportError(
                f"{file} gives {list(found.shape)} where the model gives {list(expected.shape)}"
            )
        # What is no number in the file alone differs without bound.
        differences = (found - expected).abs().nan_to_num(nan=torch.inf, posinf=torch.inf)
        differences = differences.where(held, 0)
        if (differences > allowed).any():
            raise ExportError(
                f"{file} differs from the model by {differences.max():.3g} at outputs of shape "
                f"{list(found.shape)}; allowed is {allowed.max():.3g}"
            )
        return float((differences / allowed.clamp(min=torch.finfo(allowed.dtype).tiny)).max())

    def check_label(self, told: Tensor, file: str) -> None:
        """Hold what was decided of the batch's first samples against what the model decides.

        Where outputs are as near to each other as the bound, either is right.

        Raises:
            ExportError: it differs elsewhere.
        """
        expected, held = self._expected[: len(told)], self.held[: len(told)]
        answer = self._answer
        label = None if answer is None else answer.label(expected)
        if answer is None or label is None:
            raise ExportError(f"{file} decides where the model decides nothing")
        if told.shape != label.shape:
            raise ExportError(
                f"{file} decides {list(told.shape)} where the model decides {list(label.shape)}"
            )
        wrong = (told != label) & ~answer.tied(expected, 2 * self.allowed)
        wrong &= held if answer.each else held.all(dim=-1)
        if wrong.any():
            raise ExportError(
                f"{file} decides otherwise than the model on {int(wrong.sum())} of "
                f"{wrong.numel()} samples"
            )


def _largest(values: Tensor, held: Tensor) -> Tensor:
    """The largest magnitude of a batch `[B, ..., out]`, up to each step if there are several."""
    largest = values.abs().where(held, 0).amax(dim=(0, -1), keepdim=True)
    return largest.cummax(dim=1).values
