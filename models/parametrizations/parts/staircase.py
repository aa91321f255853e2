"""Trainable staircase reflectors: Householder vectors stored without their leading zeros."""

from collections.abc import Callable, Mapping
from typing import TypeAlias

import torch
from torch import Tensor, nn

from models.hooks import Projected
from models.math.householder import (
    row_lengths,
    staircase_entries,
    staircase_positions,
    staircase_rows,
)
from models.math.precision import raised
from models.quantization import PackedDirections, Quantised, Scheme

Start: TypeAlias = Callable[[Tensor], object]
"""Fills the reflectors' entries `[G, R(n, m)]` in place; their lengths are then made 1."""


def trainable_reflectors(size: int, count: int) -> int:
    """How many of `count` reflectors can learn: all but the 1 x 1 one that count = size brings.

    `H_1(u) = -1` for every u other than 0, so that its gradient is 0.
    """
    return min(count, size - 1)


def trainable_entries(size: int, count: int) -> int:
    """The trainable numbers of `count` reflectors of R^size."""
    return staircase_entries(size, trainable_reflectors(size, count))


def reflector_numbers(*, entries: int, size: int | None) -> int:
    """Numbers that a training step takes to make a matrix of reflectors, gradients included.

    Args:
        entries: of all reflectors, with their zeros.
        size: entries of the dense matrix, where that is what is made; null: thin factors are.
    """
    return 22 * entries if size is None else 10 * entries + 7 * size


class Staircase(nn.Module, Projected, Quantised):
    """G products of `count` reflectors of R^size, each stored from its first nonzero on.

    Lengths carry no meaning: vectors are kept at length 1, because the gradient, orthogonal to the
    vector, would only ever make it longer and its steps shorter. A zero vector is the identity; it
    stays one, for its gradient is 0.
    """

    sign: Tensor | None
    _positions: Tensor
    _row_of_entry: Tensor

    def __init__(self, size: int, count: int, *, num_matrices: int, start: Start) -> None:
        super().__init__()
        self.size = size
        self.count = trainable_reflectors(size, count)
        positions = staircase_positions(size, self.count)
        self.register_buffer("_positions", positions, persistent=False)
        self.register_buffer("_row_of_entry", positions // size, persistent=False)
        # The 1 x 1 reflector is a sign, -1 like every reflector that is not the identity; it is
        # stored but not trained.
        sign = torch.full((num_matrices,), -1.0) if count == size else None
        self.register_buffer("sign", sign)
        self.entries = nn.Parameter(torch.empty(num_matrices, staircase_entries(size, self.count)))
        start(self.entries)
        if not self.entries.is_meta:  # there shapes are all that is asked for
            self.project_()

    def rows(self) -> Tensor:
        """The reflectors `[G, count, size]`, the longest first; the 1 x 1 one is not among them.

        They are in at least single precision.
        """
        return self.spread(raised(self.entries))

    def spread(self, packed: Tensor) -> Tensor:
        """Numbers `[G, R(n, m)]` of the reflectors' entries, with the zeros `[G, count, size]`."""
        return staircase_rows(packed, self._positions, size=self.size, count=self.count)

    def signed(self, diagonal: Tensor) -> Tensor:
        """A diagonal `[G, k]` with the sign of the 1 x 1 reflector, which acts on the last entry.

        It is the last of the product to its right, next to the diagonal.
        """
        if self.sign is None:
            return diagonal
        last = diagonal[:, -1:] * self.sign.to(diagonal.dtype).unsqueeze(-1)
        return torch.cat((diagonal[:, :-1], last), dim=-1)

    @torch.no_grad()
    def project_(self) -> None:
        """Bring every reflector to length 1 in place, which changes no product."""
        entries = raised(self.entries)
        lengths = row_lengths(self.spread(entries)).squeeze(-1)
        self.entries.copy_(entries / lengths.index_select(1, self._row_of_entry))

    def schemes(self) -> Mapping[str, Scheme]:
        """Directions: W is orthogonal whatever the reflectors are rounded to."""
        return {"entries": PackedDirections(self._positions, rows=self.count, columns=self.size)}

    def degrees_of_freedom(self) -> int:
        """A reflector of k entries is a direction: k - 1 degrees of freedom."""
        return self.entries.numel() - self.entries.shape[0] * self.count

    def extra_repr(self) -> str:
        """Sizes, for printing."""
        return f"size={self.size}, reflectors={self.count}"
