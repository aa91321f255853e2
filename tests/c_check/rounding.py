"""A plain rounding to whole numbers, to try the tables with."""

from typing import Literal

from torch import Tensor

from models.exports.c.tables import Rounded, Rounding


def rounding(bits: Literal[8, 4]) -> Rounding:
    """The largest number of each row becomes 127 or 7; what is rounded already stays as it is."""
    most = 2 ** (bits - 1) - 1

    def rounded(matrices: Tensor) -> Rounded:
        scale = matrices.abs().amax(-1) / most
        scale = scale.where(scale > 0, 1.0)
        whole = (matrices / scale.unsqueeze(-1)).round().clamp(-most, most)
        return Rounded(bits, whole, scale)

    return rounded
