"""What a file may differ from its model by, whatever its format."""

from collections.abc import Iterator

import torch
from torch import Tensor, nn

from models.errors import ExportError
from models.example_input import example_input
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


def normal_inputs(spec: ModelSpec) -> Iterator[Tensor]:
    """Batches of 8 at two lengths: the signature's, at most 64, and one more than twice that.

    A feed-forward model has but its own length.
    """
    signature = spec.signature
    lengths = [signature.sequence_length]
    if spec.architecture.any_length:
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

    def __init__(self, expected: Tensor, rounded: Tensor) -> None:
        """Outputs `[B, ..., out]` of the model in double and in single precision."""
        self._expected = expected
        self._held = (expected.abs() < _LARGEST) & rounded.isfinite()
        if not self._held.any():
            raise ExportError(f"at {list(expected.shape)} the model gives no number to compare")
        error = _largest(rounded.double() - expected, self._held)
        self._allowed = TOLERANCE * _largest(expected, self._held) + ROUNDINGS * error

    def share(self, found: Tensor, file: str) -> float:
        """The largest difference of outputs of the batch's first samples, as a share of the bound.

        Raises:
            ExportError: it is above 1; `file` is what the message calls the file.
        """
        expected, held = self._expected[: len(found)], self._held[: len(found)]
        if found.shape != expected.shape:
            raise ExportError(
                f"{file} gives {list(found.shape)} where the model gives {list(expected.shape)}"
            )
        # What is no number in the file alone differs without bound.
        differences = (found - expected).abs().nan_to_num(nan=torch.inf, posinf=torch.inf)
        differences = differences.where(held, 0)
        if (differences > self._allowed).any():
            raise ExportError(
                f"{file} differs from the model by {differences.max():.3g} at outputs of shape "
                f"{list(found.shape)}; allowed is {self._allowed.max():.3g}"
            )
        return float(
            (differences / self._allowed.clamp(min=torch.finfo(self._allowed.dtype).tiny)).max()
        )


def _largest(values: Tensor, held: Tensor) -> Tensor:
    """The largest magnitude of a batch `[B, ..., out]`, up to each step if there are several."""
    largest = values.abs().where(held, 0).amax(dim=(0, -1), keepdim=True)
    return largest.cummax(dim=1).values
