"""Matrices as a whole."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import torch
from torch import Tensor

from models.forms.form import Form, Whole
from models.math.products import product


@dataclass(frozen=True, eq=False)
class DenseForm(Form):
    """Materialised matrices: all G in one product."""

    name: ClassVar[str] = "dense"

    weight: Tensor
    """[G, out, in]"""
    _transposed: Tensor = field(init=False)

    def __post_init__(self) -> None:
        # Not a cached property: the lock of Python 3.11's own keeps torch.compile from tracing it.
        object.__setattr__(self, "_transposed", self.weight.flatten(0, 1).t())

    def select(self, start: int, stop: int) -> "DenseForm":
        """The matrices start..stop-1 of the stack."""
        if stop - start == self.weight.shape[0]:
            return self
        return DenseForm(self.weight[start:stop])

    def split(self, size: int) -> "list[DenseForm]":
        """The whole stack in parts of `size` matrices."""
        return [DenseForm(part) for part in torch.split(self.weight, size)]

    def addends(self, projections: Tensor) -> tuple[Tensor, ...]:
        """Addends `[B, G*out]`, one per step."""
        # Indexing in the loop would make the backward pass quadratic in T: each index pads a
        # gradient to [T, ...].
        return projections.unbind(0)

    def matmul(self, x: Tensor, addend: Tensor | None = None) -> tuple[Tensor, ...]:
        """`x W_g^T + addend_g` for each g; `addend` is `[B, G*out]`."""
        result = product(x, self._transposed, addend)
        num_matrices = self.weight.shape[0]
        return (result,) if num_matrices == 1 else result.chunk(num_matrices, dim=-1)

    def matmul_each(self, x: Tensor, addends: Tensor) -> tuple[Tensor, ...]:
        """`x_g W_g^T + addends_g`, as one batched product."""
        return torch.baddbmm(addends, x, self.weight.mT).unbind(0)

    def tensors(self) -> tuple[Tensor, ...]:
        """W."""
        return (self.weight,)

    def rebuild(self, tensors: Sequence[Tensor]) -> "DenseForm":
        """Of another W."""
        return DenseForm(*tensors)

    def multiply_adds(self) -> int:
        """One per entry of W."""
        return self.weight.numel()

    def whole(self) -> Tensor:
        """W."""
        return self.weight

    def parts(self) -> Whole:
        """W."""
        return Whole(self.weight)
