"""Orthogonal matrices of packed rotations, and SVDs with such bases, applied stage by stage."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from models.forms.dense import DenseForm
from models.forms.form import Form, Turns
from models.math.precision import raised
from models.math.rotations import circle_partners, rotation_product


def rotated_form_pays(stages: int, size: int) -> bool:
    """Whether so many stages of rotations beat an n x n matrix: `9 * stages + 16 <= n`.

    The measured crossover of training and inference with our kernels on CPUs
    (tests/benchmarks/structured.py).
    """
    return 9 * stages + 16 <= size


@dataclass(frozen=True, eq=False)
class RotatedForm(Form):
    """`W_g = U_g`, or `W_g = U_g diag(s_g) V_g^T`, of packed rotations by the circle's schedule.

    Our kernels take the angles. Other backends make the matrices first: see `for_loop`.
    """

    name: ClassVar[str] = "rotations"

    u: Tensor
    """Signed angles of U [G, K_u, n], the stage that acts first comes first"""
    s: Tensor | None = None
    """[G, n]"""
    v: Tensor | None = None
    """Signed angles of V [G, K_v, n]"""

    def for_loop(self) -> DenseForm:
        """The matrices as a whole: only our kernels turn a vector in less time than a product."""
        return DenseForm(self.whole())

    def matmul(self, x: Tensor, addend: Tensor | None = None) -> tuple[Tensor, ...]:
        """`x W_g^T + addend_g` for each g; `addend` is `[B, G*out]`."""
        return self.for_loop().matmul(x, addend)

    def matmul_each(self, x: Tensor, addends: Tensor) -> tuple[Tensor, ...]:
        """`x_g W_g^T + addends_g` for each g."""
        return self.for_loop().matmul_each(x, addends)

    def addends(self, projections: Tensor) -> tuple[Tensor, ...]:
        """Addends `[B, G*out]`, one per step."""
        return projections.unbind(0)

    def select(self, start: int, stop: int) -> "RotatedForm":
        """The matrices start..stop-1 of the stack."""
        return self.rebuild([tensor[start:stop] for tensor in self.tensors()])

    def split(self, size: int) -> "list[RotatedForm]":
        """The whole stack in parts of `size` matrices."""
        parts = zip(*(torch.split(tensor, size) for tensor in self.tensors()), strict=True)
        return [self.rebuild(part) for part in parts]

    def tensors(self) -> tuple[Tensor, ...]:
        """Angles of U; s and the angles of V, where W has them."""
        return (self.u,) if self.s is None or self.v is None else (self.u, self.s, self.v)

    def rebuild(self, tensors: Sequence[Tensor]) -> "RotatedForm":
        """Of other angles."""
        return RotatedForm(*tensors)

    def multiply_adds(self) -> int:
        """Four for each pair of coordinates in each stage, one for each entry of s."""
        num_matrices, stages, size = self.u.shape
        count = 4 * stages * (size // 2)
        if self.v is not None:
            count += 4 * self.v.shape[1] * (size // 2) + size
        return num_matrices * count

    def parts(self) -> Turns:
        """The angles, and s."""
        return Turns(self.u, self.s, self.v)

    def whole(self) -> Tensor:
        """The products of all stages."""
        u = raised(self.u)
        matrix = rotation_product(u, _partners(u))
        if self.s is not None and self.v is not None:
            v = raised(self.v)
            # V^T undoes V's stages, the last one first.
            undone = rotation_product(-v.flip(1), _partners(v).flip(0))
            matrix = (matrix * raised(self.s).unsqueeze(-2)) @ undone
        return matrix.to(self.u.dtype)


def _partners(angles: Tensor) -> Tensor:
    return circle_partners(angles.shape[2], angles.shape[1]).to(angles.device)
