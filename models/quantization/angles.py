"""Angles on a uniform grid of the circle."""

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from models.quantization.scheme import Bits, Encoded, Layout, Scheme

_ANGLE_BITS: Mapping[Bits, int] = {8: 16, 4: 8}
"""Errors of many rotations in a row add up: each gets twice as many bits as other numbers."""


class Angles(Scheme):
    """Any shape: `2 pi q / 2^b` with 16 or 8 bits b, and no scale; full turns are left out.

    Rounding again gives the same q: single precision is off by at most 2^-24 of an angle, which is
    2^-9 of the distance between two places of the finest grid.
    """

    def layout(self, shape: tuple[int, ...], bits: Bits) -> Layout:
        """As many integers as angles."""
        width = _ANGLE_BITS[bits]
        return Layout(shape=shape, bits=width, scale_shape=None, unit=2 * math.pi / 2**width)

    def encode(self, parameter: Tensor, bits: Bits) -> Encoded:
        """The nearest places, -2^(b-1)..2^(b-1)-1."""
        layout = self.layout(tuple(parameter.shape), bits)
        half = 2 ** (layout.bits - 1)
        places = torch.round(parameter.double() / layout.unit)
        integers = (torch.remainder(places + half, 2 * half) - half).to(layout.stored_type)
        return Encoded(layout=layout, integers=integers, scale=None)
