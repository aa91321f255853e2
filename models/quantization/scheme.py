"""What a rounding scheme offers, and what a parameter is once it is rounded."""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, Self, TypeAlias

import torch
from torch import Tensor

from models.quantization.packing import pack_halves, unpack_halves

Bits: TypeAlias = Literal[8, 4]
"""Bits that a model's numbers are rounded to; schemes may keep more of some."""

SCALE_BYTES = 2
"""Scales are of type bfloat16."""


@dataclass(frozen=True, kw_only=True)
class Layout:
    """What a rounded parameter is stored as, which follows from its shape: `q * unit * scale`."""

    shape: tuple[int, ...]
    """Of the parameter, and of its integers q."""
    bits: int
    """Of each integer: 4, 8 or 16."""
    scale_shape: tuple[int, ...] | None
    """As many dimensions as the parameter has, of which some are 1; None: there are no scales."""
    unit: float = 1.0
    """What every integer is multiplied by, in double precision; 1 where there are scales."""

    @property
    def size_bytes(self) -> int:
        """Bytes of the integers and the scales."""
        scales = 0 if self.scale_shape is None else math.prod(self.scale_shape)
        return math.ceil(math.prod(self.shape) * self.bits / 8) + SCALE_BYTES * scales

    @property
    def stored_shape(self) -> tuple[int, ...]:
        """Of the tensor that a file holds: two integers of 4 bits are one byte."""
        return (math.ceil(math.prod(self.shape) / 2),) if self.bits == 4 else self.shape

    @property
    def stored_type(self) -> torch.dtype:
        """Of the tensor that a file holds."""
        return {4: torch.uint8, 8: torch.int8, 16: torch.int16}[self.bits]


@dataclass(frozen=True, kw_only=True, eq=False)
class Encoded:
    """A rounded parameter: integers, and what they are multiplied by."""

    layout: Layout
    integers: Tensor
    """q, int8 or int16, of the parameter's shape; 4 bits are -7..7, one to a number here."""
    scale: Tensor | None
    """bfloat16, of the shape `layout.scale_shape`."""

    @property
    def bits(self) -> int:
        """Of each integer."""
        return self.layout.bits

    @property
    def size_bytes(self) -> int:
        """Bytes of the integers and the scales."""
        return self.layout.size_bytes

    def values(self) -> Tensor:
        """The parameter in single precision: exactly `q * scale`, or `q * unit` rounded once."""
        if self.scale is None:
            return (self.integers.double() * self.layout.unit).float()
        return self.integers.float() * self.scale.float()

    def stored(self) -> Tensor:
        """The integers as a file holds them; of two in one byte the first has the low half."""
        return pack_halves(self.integers) if self.bits == 4 else self.integers

    @classmethod
    def of_stored(cls, layout: Layout, stored: Tensor, scale: Tensor | None) -> Self:
        """What `stored` and `scale` are of."""
        integers = unpack_halves(stored, layout.shape) if layout.bits == 4 else stored
        return cls(layout=layout, integers=integers, scale=scale)


class Scheme(ABC):
    """A way of rounding a parameter. Rounding what was rounded changes no bit of it.

    That is what files rest on: integers and scales are found in the parameter itself.
    """

    @abstractmethod
    def layout(self, shape: tuple[int, ...], bits: Bits) -> Layout:
        """What a parameter of this shape is stored as."""

    @abstractmethod
    def encode(self, parameter: Tensor, bits: Bits) -> Encoded:
        """The nearest integers, with their scales; the parameter's numbers are finite."""

    def for_a_step(self, parameter: Tensor, bits: Bits) -> Tensor:
        """The rounded numbers at which the gradient is taken that moves the parameter itself."""
        return self.encode(parameter, bits).values()


class Quantised(ABC):
    """A module that says how its parameters are rounded where a model has few bits."""

    @abstractmethod
    def schemes(self) -> Mapping[str, Scheme]:
        """The schemes of its own parameters, by attribute; those left out are never rounded."""
