"""Matrices that are given by one batched product."""

from abc import abstractmethod
from collections.abc import Sequence

import torch
from torch import Tensor

from models.forms.form import Form, addends_of_each


class BatchedForm(Form):
    """A form that says what `each` of its matrices makes of a vector of its own; the rest follows.

    The shortest way to a new form. One that is asked often is worth a `matmul` of its own.
    """

    @property
    @abstractmethod
    def num_matrices(self) -> int:
        """How many matrices G there are."""

    @property
    @abstractmethod
    def inputs(self) -> int:
        """How many numbers a vector has that they are applied to."""

    @abstractmethod
    def each(self, x: Tensor) -> Tensor:
        """`x_g W_g^T` for each g: `[G, B, in]` -> `[G, B, out]`."""

    def matmul(self, x: Tensor, addend: Tensor | None = None) -> tuple[Tensor, ...]:
        """`x W_g^T + addend_g` for each g; `addend` is `[G, B, out]`."""
        result = self.each(x.expand(self.num_matrices, *x.shape))
        return (result if addend is None else result + addend).unbind(0)

    def matmul_each(self, x: Tensor, addends: Tensor) -> tuple[Tensor, ...]:
        """`x_g W_g^T + addends_g` for each g."""
        return (self.each(x) + addends).unbind(0)

    def addends(self, projections: Tensor) -> tuple[Tensor, ...]:
        """Addends `[G, B, out]`, one per step."""
        return addends_of_each(projections, self.num_matrices)

    def whole(self) -> Tensor:
        """What they make of the identity's rows, transposed."""
        like, rows = self.tensors()[0], self.inputs
        identity = torch.eye(rows, dtype=like.dtype, device=like.device)
        return self.each(identity.expand(self.num_matrices, rows, rows)).mT

    def split(self, size: int) -> Sequence[Form]:
        """One selection after the other, whose backward pass is quadratic in their number."""
        return [self.select(start, start + size) for start in range(0, self.num_matrices, size)]
