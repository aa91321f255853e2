"""Matrices whose rows are kept as a direction and a length."""

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from models.hooks import Projected
from models.math.householder import row_lengths
from models.math.linalg import row_norms
from models.math.precision import raised
from models.quantization import Directions, Quantised, Scheme

LONGEST_ROW = 10.0


class NormalisedRows(nn.Module, Projected, Quantised):
    """`w_i = g_i v_i / |v_i|` for every row i of a stack of matrices `[..., rows, columns]`.

    Without gain every row has length 1. The raw rows v are cut to length 10 after each optimizer
    step, which changes no w: their gradient is orthogonal to them, so that steps only make them
    longer. Source: Miceli Barone (arXiv:1603.03116, A.2), after Salimans and Kingma
    (arXiv:1602.07868) and, for the cut, max-norm (arXiv:1207.0580).
    """

    gain: nn.Parameter | None

    def __init__(self, start: Tensor, *, gain: bool) -> None:
        """`start` gives the directions, and with gain the lengths as well."""
        super().__init__()
        self.direction = nn.Parameter(torch.empty_like(start))
        self.register_parameter(
            "gain", nn.Parameter(torch.empty_like(start[..., 0])) if gain else None
        )
        self.start_from_(start)

    @torch.no_grad()
    def start_from_(self, start: Tensor) -> None:
        """Take directions, and with gain lengths, from matrices of the same shape."""
        self.direction.copy_(start)
        if self.gain is not None:
            self.gain.copy_(row_lengths(start).squeeze(-1))

    def forward(self) -> Tensor:
        """The matrices w `[..., rows, columns]`; a row v = 0 gives w = 0."""
        unit = unit_rows(raised(self.direction))
        if self.gain is not None:
            unit = unit * raised(self.gain).unsqueeze(-1)
        return unit.to(self.direction.dtype)

    @torch.no_grad()
    def project_(self) -> None:
        """Cut raw rows that are longer than 10 to that length, in place."""
        self.direction.mul_((LONGEST_ROW / row_lengths(self.direction)).clamp(max=1))

    def schemes(self) -> Mapping[str, Scheme]:
        """Raw rows need no scale; lengths stay as they are."""
        return {"direction": Directions()}

    def extra_repr(self) -> str:
        """Shape, for printing."""
        return f"{tuple(self.direction.shape)}, gain={self.gain is not None}"


def unit_rows(rows: Tensor) -> Tensor:
    """`v / |v|` for every row of `[..., rows, columns]`; a row v = 0 stays 0."""
    # Brought near length 1 by a constant, which changes no quotient, squares stay within range.
    rows = rows / row_lengths(rows.detach())
    lengths = row_norms(rows)
    return rows / lengths.masked_fill(lengths == 0, 1)


def plain_rows(rows: Tensor | NormalisedRows) -> Tensor:
    """The matrices themselves, however they are kept."""
    return rows() if isinstance(rows, NormalisedRows) else rows
