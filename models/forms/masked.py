"""Matrices behind a dropout mask."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from models.forms.form import Form, addends_of_each


@dataclass(frozen=True, eq=False)
class MaskedForm(Form):
    """Matrices that see only what a dropout mask leaves of the state: `(mask * state) W_g^T`.

    One mask for a whole sequence, shared by all matrices or one for each (Gal and Ghahramani,
    arXiv:1512.05287).
    """

    name: ClassVar[str] = "masked"

    inner: Form
    mask: Tensor
    """[1, B, in] for one mask, [G, B, in] for one per matrix"""

    @property
    def _tied(self) -> bool:
        return self.mask.shape[0] == 1

    def select(self, start: int, stop: int) -> "MaskedForm":
        """The matrices start..stop-1 of the stack, with their masks."""
        mask = self.mask if self._tied else self.mask[start:stop]
        return MaskedForm(self.inner.select(start, stop), mask)

    def split(self, size: int) -> "list[MaskedForm]":
        """The whole stack in parts of `size` matrices, with their masks."""
        parts = self.inner.split(size)
        masks = [self.mask] * len(parts) if self._tied else torch.split(self.mask, size)
        return [MaskedForm(part, mask) for part, mask in zip(parts, masks, strict=True)]

    def addends(self, projections: Tensor) -> tuple[Tensor, ...]:
        """As the matrices take them; `[G, B, out]` where each has its own mask."""
        if self._tied:
            return self.inner.addends(projections)
        return addends_of_each(projections, self.mask.shape[0])

    def matmul(self, x: Tensor, addend: Tensor | None = None) -> tuple[Tensor, ...]:
        """`(mask_g * x) W_g^T + addend_g` for each g; `addend` as `addends` gives it."""
        if self._tied:
            return self.inner.matmul(self.mask[0] * x, addend)
        masked = self.mask * x
        if addend is None:
            addend = masked.new_zeros(())
        return self.inner.matmul_each(masked, addend)

    def matmul_each(self, x: Tensor, addends: Tensor) -> tuple[Tensor, ...]:
        """`(mask_g * x_g) W_g^T + addends_g` for each g."""
        return self.inner.matmul_each(self.mask * x, addends)

    def tensors(self) -> tuple[Tensor, ...]:
        """The mask, then what the matrices are made of."""
        return (self.mask, *self.inner.tensors())

    def rebuild(self, tensors: Sequence[Tensor]) -> "MaskedForm":
        """Of another mask and other matrices."""
        mask, *inner = tensors
        return MaskedForm(self.inner.rebuild(inner), mask)

    def multiply_adds(self) -> int:
        """Those of the matrices."""
        return self.inner.multiply_adds()

    def for_loop(self) -> "MaskedForm":
        """The same mask before the matrices as they are applied again and again."""
        return MaskedForm(self.inner.for_loop(), self.mask)

    def structure(self) -> Hashable:
        """With that of the matrices."""
        return MaskedForm, self.inner.structure()
