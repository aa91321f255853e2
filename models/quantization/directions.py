"""Vectors of which the direction alone counts: integers, and no scale."""

from torch import Tensor

from models.quantization.scheme import Bits, Encoded, Layout, Scheme
from models.quantization.slices import round_slices


class Directions(Scheme):
    """`[..., k]`: rows whose lengths carry no meaning: applying one divides by its length.

    The integers of a row are its numbers, times `2^-7` or `2^-3`; so the largest magnitude of a row
    is just below 1. A row of 0 stays one. What is made of the rows is as orthogonal as before.
    """

    def layout(self, shape: tuple[int, ...], bits: Bits) -> Layout:
        """As many integers as numbers."""
        return Layout(shape=shape, bits=bits, scale_shape=None, unit=2.0 ** (1 - bits))

    def encode(self, parameter: Tensor, bits: Bits) -> Encoded:
        """See `round_slices`, which finds the same integers whatever a row is multiplied by.

        The unit is a power of two, so that it is the scale that is found in rounded rows.
        """
        shape = tuple(parameter.shape)
        integers = self.gathered(round_slices(self.spread(parameter.float()), bits, dim=-1)[0])
        return Encoded(layout=self.layout(shape, bits), integers=integers, scale=None)

    def for_a_step(self, parameter: Tensor, bits: Bits) -> Tensor:
        """Rounded rows of the lengths that they had, by which the gradient is divided."""
        rows = self.spread(parameter.float())
        rounded = round_slices(rows, bits, dim=-1)[0].float()
        return self.gathered(rounded * (_lengths(rows) / _lengths(rounded)))

    def spread(self, parameter: Tensor) -> Tensor:
        """The rows `[..., k]`."""
        return parameter

    def gathered(self, rows: Tensor) -> Tensor:
        """The parameter of such rows."""
        return rows


def _lengths(rows: Tensor) -> Tensor:
    """`[..., 1]`; 1 for a row of 0. No square overflows: the largest number is 1 before."""
    largest = rows.abs().amax(-1, keepdim=True)
    zero = largest == 0
    largest = largest.masked_fill(zero, 1)
    lengths = (rows / largest).square().sum(-1, keepdim=True).sqrt() * largest
    return lengths.masked_fill(zero, 1)


class PackedDirections(Directions):
    """Rows that are stored one behind the other, without what is 0 in all of them."""

    def __init__(self, positions: Tensor, *, rows: int, columns: int) -> None:
        """`positions` `[N]` is where each stored number stands in the flattened rows."""
        self._positions, self._rows, self._columns = positions, rows, columns

    def spread(self, parameter: Tensor) -> Tensor:
        """`[G, N]` -> `[G, rows, columns]`."""
        flat = parameter.new_zeros(len(parameter), self._rows * self._columns)
        flat = flat.index_copy(1, self._positions, parameter)
        return flat.view(len(parameter), self._rows, self._columns)

    def gathered(self, rows: Tensor) -> Tensor:
        """`[G, rows, columns]` -> `[G, N]`."""
        return rows.flatten(1).index_select(1, self._positions)
