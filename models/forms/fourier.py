"""Unitary matrices of Fourier transforms, applied without being formed."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, cast

import torch
from torch import Tensor

from models.forms.batched import BatchedForm
from models.forms.dense import DenseForm
from models.forms.form import Form, Fourier
from models.kernels.unitary import transform_products, transforms
from models.math.complex_matrices import real_form
from models.math.precision import raised
from models.math.unitary import fourier_product
from models.math.weight_norm import unit_rows

_fft = cast(Any, torch.fft)  # torch ships it without types


def fourier_form_pays(size: int, *, by_kernel: bool) -> bool:
    """Whether transforms beat the real form of an n x n complex matrix.

    By our kernel always, in torch's operations from n = 340 on, where training one sample at a time
    gains, too (tests/benchmarks/structured.py).
    """
    return by_kernel or size >= 340


@dataclass(frozen=True, eq=False)
class FourierForm(Form):
    """`D_3 R_2 F^{-1} D_2 Pi R_1 F D_1` on vectors kept as `(re | im)` (models/math/README.md).

    D are diagonals of phases, R reflections, Pi a permutation and F the unitary Fourier transform.
    Our kernel takes them as they are. Other backends make the factors or the matrices
    first: see `for_loop`.
    """

    name: ClassVar[str] = "fourier"

    phases: Tensor
    """Angles of D_1, D_2, D_3: [G, 3, n]"""
    reflections: Tensor
    """Vectors of R_1 and R_2 as `(re | im)` of any length, or 0 for the identity: [G, 2, 2 n]"""
    order: Tensor
    """int64 [n]: Pi takes coordinate `order[j]` to place j"""

    def for_loop(self) -> "TransformForm | DenseForm":
        """The factors, or the matrices as a whole, whichever torch's operations apply faster."""
        if not fourier_form_pays(self.order.shape[0], by_kernel=False):
            return DenseForm(self.whole())
        phases, reflections = raised(self.phases), raised(self.reflections)
        diagonals = torch.stack((phases.cos(), phases.sin()), dim=-2)
        vectors = math.sqrt(2) * unit_rows(reflections)
        dtype, split = self.phases.dtype, (*vectors.shape[:-1], 2, -1)
        return TransformForm(diagonals.to(dtype), vectors.view(split).to(dtype), self.order)

    def matmul(self, x: Tensor, addend: Tensor | None = None) -> tuple[Tensor, ...]:
        """`x W_g^T + addend_g` for each g; `addend` is `[B, G*out]`."""
        form = self.for_loop()
        return form.matmul(x, None if addend is None else form.addends(addend.unsqueeze(0))[0])

    def matmul_each(self, x: Tensor, addends: Tensor) -> tuple[Tensor, ...]:
        """`x_g W_g^T + addends_g` for each g."""
        return self.for_loop().matmul_each(x, addends)

    def addends(self, projections: Tensor) -> tuple[Tensor, ...]:
        """Addends `[B, G*out]`, one per step."""
        return projections.unbind(0)

    def select(self, start: int, stop: int) -> "FourierForm":
        """The matrices start..stop-1 of the stack."""
        return FourierForm(self.phases[start:stop], self.reflections[start:stop], self.order)

    def split(self, size: int) -> "list[FourierForm]":
        """The whole stack in parts of `size` matrices."""
        parts = zip(
            torch.split(self.phases, size), torch.split(self.reflections, size), strict=True
        )
        return [FourierForm(*part, self.order) for part in parts]

    def tensors(self) -> tuple[Tensor, ...]:
        """Phases, reflections and the order."""
        return self.phases, self.reflections, self.order

    def rebuild(self, tensors: Sequence[Tensor]) -> "FourierForm":
        """Of other phases and reflections."""
        return FourierForm(*tensors)

    def multiply_adds(self) -> int:
        """Those of our kernel, where there is one for this size; else of what `for_loop` gives."""
        num_matrices, _, size = self.phases.shape
        if transforms(size):
            return num_matrices * (2 * transform_products(size) + _BESIDE * size)
        if fourier_form_pays(size, by_kernel=False):
            return num_matrices * _products_of_torch(size)
        return num_matrices * 4 * size**2

    def parts(self) -> Fourier:
        """Phases, reflections and the order."""
        return Fourier(self.phases, self.reflections, self.order)

    def whole(self) -> Tensor:
        """The real forms of the products of all factors, `[G, 2 n, 2 n]`."""
        places = self.order.argsort()
        weight = fourier_product(raised(self.phases), raised(self.reflections), places)
        return real_form(weight.real, weight.imag).to(self.phases.dtype)


@dataclass(frozen=True, eq=False)
class TransformForm(BatchedForm):
    """The same as factors that torch's operations apply again and again."""

    name: ClassVar[str] = FourierForm.name

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

    def select(self, start: int, stop: int) -> "TransformForm":
        """The matrices start..stop-1 of the stack."""
        return TransformForm(self.diagonals[start:stop], self.vectors[start:stop], self.order)

    def tensors(self) -> tuple[Tensor, ...]:
        """Diagonals, vectors and the order."""
        return self.diagonals, self.vectors, self.order

    def rebuild(self, tensors: Sequence[Tensor]) -> "TransformForm":
        """Of other diagonals and vectors."""
        return TransformForm(*tensors)

    def multiply_adds(self) -> int:
        """As if n were a power of 2."""
        return self.num_matrices * _products_of_torch(self.order.shape[0])

    @property
    def inputs(self) -> int:
        """2 n."""
        return 2 * self.order.shape[0]


_BESIDE = 28
"""Multiply-adds for each coordinate beside the transforms: 12 of diagonals, 16 of reflections."""


def _products_of_torch(size: int) -> int:
    """About `5 n log2 n` for two transforms."""
    return 5 * size * math.ceil(math.log2(max(size, 2))) + _BESIDE * size


def _complex(parts: Tensor) -> Tensor:
    """`[..., 2, n]` of real and imaginary parts -> complex `[..., n]`."""
    real, imaginary = parts.unbind(-2)
    return torch.complex(real, imaginary)


def _reflected(z: Tensor, vector: Tensor) -> Tensor:
    """`z - v (v^* z)` for every row z of `[G, B, n]`; v `[G, n, 1]`."""
    return z - (z @ vector.conj()) * vector.mT
