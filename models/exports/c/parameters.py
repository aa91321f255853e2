"""Parameters as a C file holds them: numbers, or integers with their scales."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from models.math.householder import row_lengths
from models.math.weight_norm import NormalisedRows, plain_rows
from models.quantization import Bits, Encoded, encode


@dataclass(frozen=True, eq=False)
class Stored:
    """Matrices `[..., rows, columns]`: numbers, or integers times scales of rows or of columns."""

    numbers: Tensor
    """In any precision; integers where there are bits"""
    bits: int | None = None
    """Of an integer, 8 or 4"""
    by_row: Tensor | None = None
    """[..., rows]: bfloat16, or in double precision"""
    by_column: Tensor | None = None
    """[..., columns], bfloat16"""

    def __getitem__(self, place: int | slice) -> "Stored":
        """Some of the matrices, by their first dimension."""
        return Stored(
            self.numbers[place],
            self.bits,
            None if self.by_row is None else self.by_row[place],
            None if self.by_column is None else self.by_column[place],
        )

    def chunks(self, count: int) -> "list[Stored]":
        """As many equal parts of the first dimension."""
        size = len(self.numbers) // count
        return [self[place * size : (place + 1) * size] for place in range(count)]

    def transposed(self) -> "Stored":
        """The matrices' transposes."""
        return Stored(self.numbers.mT, self.bits, self.by_column, self.by_row)


def parameter(owner: nn.Module, attribute: str, bits: Bits | None) -> Stored:
    """A parameter of matrices that a module owns, plain or of rows that are normalised.

    Raises:
        RoundingError: the model was to be rounded, and is not.
    """
    value: Tensor | NormalisedRows = getattr(owner, attribute)
    if bits is None:
        return Stored(plain_rows(value).detach())
    if isinstance(value, NormalisedRows):
        directions = integers(value, "direction", bits)
        scale = 1 / row_lengths(directions.double()).squeeze(-1)
        if value.gain is not None:
            scale = scale * value.gain.detach().double()
        return Stored(directions, bits, by_row=scale)
    found = encoded(owner, attribute, bits)
    scale = found.scale
    assert scale is not None
    if scale.shape[-2:] == (value.shape[-2], 1):
        return Stored(found.integers, bits, by_row=scale.squeeze(-1))
    return Stored(found.integers, bits, by_column=scale.squeeze(-2))


def integers(owner: nn.Module, attribute: str, bits: Bits) -> Tensor:
    """The integers of a parameter that has no scales.

    Raises:
        RoundingError: the model was to be rounded, and is not.
    """
    return encoded(owner, attribute, bits).integers


def encoded(owner: nn.Module, attribute: str, bits: Bits) -> Encoded:
    """Integers and scales of a parameter that is rounded.

    Raises:
        RoundingError: it is not.
    """
    found = encode(owner, attribute, bits)
    assert found is not None
    return found


def brain_float_digits(scale: Tensor) -> Tensor:
    """The 16 bits of each number of type bfloat16, int64."""
    return scale.contiguous().view(torch.int16).to(torch.int64) & 0xFFFF
