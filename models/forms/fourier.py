"""Unitary matrices of Fourier transforms, applied without being formed."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, cast

import torch
from torch import Tensor

from models.forms.batched import BatchedForm
from models.math.precision import raised

_fft = cast(Any, torch.fft)  # torch ships it without types


def fourier_form_pays(size: int) -> bool:
    """Whether transforms beat the real form of an n x n complex matrix: from n = 340 on.

    Where training one sample at a time gains, too (tests/benchmarks/structured.py); batches do from
    n = 256 on.
    """
    return size >= 340


@dataclass(frozen=True, eq=False)
class FourierForm(BatchedForm):
    """`D_3 R_2 F^{-1} D_2 Pi R_1 F D_1` on vectors kept as `(re | im)` (models/math/README.md).

    D are diagonals of phases, R reflections, Pi a permutation and F the unitary Fourier transform.
    """

    name: ClassVar[str] = "fourier"

    diagonals: Tensor
    """cos and sin of the phases of D_1, D_2, D_3: [G, 3, 2, n]"""
    vectors: Tensor
    """Those of R_1 and R_2 as `(re | im)` of length sqrt(2), or 0 for the identity: [G, 2, 2, n]"""
    order: Tensor
    """int64 [n]: Pi takes coordinate `order[j]` to place j"""
    _diagonals: tuple[Tensor, ...] = field(init=False)
    _vectors: tuple[Tensor, ...] = field(init=False)

    def __post_init__(self) -> None:
        diagonals, vectors = (_complex(raised(t)) for t in (self.diagonals, self.vectors))
        object.__setattr__(self, "_diagonals", diagonals.unsqueeze(2).unbind(1))
        object.__setattr__(self, "_vectors", vectors.unsqueeze(-1).unbind(1))

    @property
    def num_matrices(self) -> int:
        """G."""
        return self.diagonals.shape[0]

    def each(self, x: Tensor) -> Tensor:
        """Factor by factor, the first one first."""
        size = self.order.shape[0]
        if x.numel() == 0:
            return x
        first, second, third = self._diagonals
        before, after = self._vectors
        z = raised(x)
        z = _fft.fft(torch.complex(z[..., :size], z[..., size:]) * first, norm="ortho")
        z = _reflected(z, before).index_select(-1, self.order) * second
        z = _reflected(_fft.ifft(z, norm="ortho"), after) * third
        return torch.cat((z.real, z.imag), dim=-1).to(x.dtype)

    def select(self, start: int, stop: int) -> "FourierForm":
        """The matrices start..stop-1 of the stack."""
        return FourierForm(self.diagonals[start:stop], self.vectors[start:stop], self.order)

    def split(self, size: int) -> "list[FourierForm]":
        """The whole stack in parts of `size` matrices."""
        parts = zip(torch.split(self.diagonals, size), torch.split(self.vectors, size), strict=True)
        return [FourierForm(*part, self.order) for part in parts]

    def tensors(self) -> tuple[Tensor, ...]:
        """Diagonals, vectors and the order."""
        return self.diagonals, self.vectors, self.order

    def rebuild(self, tensors: Sequence[Tensor]) -> "FourierForm":
        """Of other diagonals and vectors."""
        return FourierForm(*tensors)

    def multiply_adds(self) -> int:
        """About `5 n log2 n` for two transforms, 12 n for diagonals and 16 n for reflections."""
        size = self.order.shape[0]
        return self.num_matrices * (5 * size * math.ceil(math.log2(max(size, 2))) + 28 * size)

    @property
    def inputs(self) -> int:
        """2 n."""
        return 2 * self.order.shape[0]


def _complex(parts: Tensor) -> Tensor:
    """`[..., 2, n]` of real and imaginary parts -> complex `[..., n]`."""
    real, imaginary = parts.unbind(-2)
    return torch.complex(real, imaginary)


def _reflected(z: Tensor, vector: Tensor) -> Tensor:
    """`z - v (v^* z)` for every row z of `[G, B, n]`; v `[G, n, 1]`."""
    return z - (z @ vector.conj()) * vector.mT
