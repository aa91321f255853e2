"""Plain matrices: integers, and a scale for each row or column."""

from torch import Tensor

from models.quantization.scheme import Bits, Encoded, Layout, Scheme
from models.quantization.slices import round_slices


class Rows(Scheme):
    """`[..., k]`: a scale for the k numbers of each row."""

    def layout(self, shape: tuple[int, ...], bits: Bits) -> Layout:
        """As many integers as numbers, and a scale per row."""
        dim = self.along(shape)
        scale_shape = tuple(1 if place == dim else n for place, n in enumerate(shape))
        return Layout(shape=shape, bits=bits, scale_shape=scale_shape)

    def encode(self, parameter: Tensor, bits: Bits) -> Encoded:
        """See `round_slices`."""
        shape = tuple(parameter.shape)
        integers, scale = round_slices(parameter.float(), bits, dim=self.along(shape))
        return Encoded(layout=self.layout(shape, bits), integers=integers, scale=scale)

    def along(self, shape: tuple[int, ...]) -> int:
        """The dimension whose numbers share a scale."""
        return len(shape) - 1


class Matrices(Rows):
    """`[..., rows, columns]`: a scale per row, or per column where there are fewer of these.

    Thin factors so have d scales, `L diag(s) R`, where a scale per row of L would be another
    number for every d of them.
    """

    def along(self, shape: tuple[int, ...]) -> int:
        """The longer side."""
        rows, columns = shape[-2:]
        return len(shape) - (1 if columns >= rows else 2)
