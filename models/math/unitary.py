"""Unitary matrices of phases, reflections, a permutation and Fourier transforms.

Equation numbers refer to README.md.
"""

import hashlib
import math
from typing import Any, cast

import torch
from torch import Tensor

from models.math.weight_norm import unit_rows

_fft = cast(Any, torch.fft)  # torch ships it without types


def hashed_order(size: int) -> list[int]:
    """The indices 0 .. n-1, sorted by the SHA-256 of their decimal numbers.

    A permutation without visible order that needs no storage: it is the same on every machine and
    with every version of whatever library.
    """
    return sorted(range(size), key=lambda index: hashlib.sha256(str(index).encode()).digest())


def fourier_product(phases: Tensor, reflections: Tensor, places: Tensor) -> Tensor:
    """`D_3 R_2 F^{-1} D_2 Pi R_1 F D_1` as complex matrices `[G, n, n]` (eq. 22).

    Args:
        phases: angles of the diagonals D_1, D_2, D_3, `[G, 3, n]`, in radians.
        reflections: vectors v of R_1 and R_2 as `(re | im)`, `[G, 2, 2 n]`; for v = 0 R is the
            identity, and v gets no gradient.
        places: `[n]`; Pi brings coordinate j to place `places[j]`.
    """
    first, second, third = torch.complex(phases.cos(), phases.sin()).unsqueeze(-2).unbind(1)
    real, imaginary = (math.sqrt(2) * unit_rows(reflections)).chunk(2, dim=-1)
    before, after = torch.complex(real, imaginary).unsqueeze(-1).unbind(1)
    # Rows of the identity, multiplied from the right by one factor after the other.
    rows = _reflect(torch.diag_embed(third.squeeze(-2)), after)
    rows = _inverse_fourier(rows) * second
    rows = _reflect(rows.index_select(-1, places), before)
    return _fourier(rows) * first


def _fourier(rows: Tensor) -> Tensor:
    """`x F` for every row x, with the unitary F, which is symmetric."""
    return _fft.fft(rows, norm="ortho")


def _inverse_fourier(rows: Tensor) -> Tensor:
    """`x F^{-1}` for every row x."""
    return _fft.ifft(rows, norm="ortho")


def _reflect(rows: Tensor, vector: Tensor) -> Tensor:
    """`x R = x - (x v) v^*` for every row x of `[G, m, n]`; v `[G, n, 1]` has length sqrt(2)."""
    return rows - (rows @ vector) * vector.mH
