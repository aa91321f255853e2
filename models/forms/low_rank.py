"""Two thin matrices and a diagonal."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import torch
from torch import Tensor

from models.forms.dense import DenseForm
from models.forms.form import Form, Thin, addends_of_each, factored_form_pays
from models.math.precision import raised
from models.math.products import product


@dataclass(frozen=True, eq=False)
class LowRankForm(Form):
    """`W_g = L_g R_g + diag(D_g)`, applied through its factors; W is never formed.

    Consecutive matrices may share one R, which is then applied once for all of them.
    """

    name: ClassVar[str] = "low_rank"

    left: Tensor
    """L [G, out, d]"""
    right: Tensor
    """R [G / s, d, in]; each R serves s consecutive matrices"""
    diagonal: Tensor | None = None
    """D [G, out], for square matrices"""
    _right_transposed: Tensor = field(init=False)
    _left_transposed: Tensor = field(init=False)
    """The matrices behind one R side by side: `[G / s, d, s*out]`."""

    def __post_init__(self) -> None:
        num_right, rank, _ = self.right.shape
        object.__setattr__(self, "_right_transposed", self.right.flatten(0, 1).t())
        object.__setattr__(self, "_left_transposed", self.left.reshape(num_right, -1, rank).mT)

    @property
    def shared_by(self) -> int:
        """How many matrices read through one R."""
        return self.left.shape[0] // self.right.shape[0]

    def select(self, start: int, stop: int) -> "LowRankForm":
        """The matrices start..stop-1 of the stack, some behind one R or all behind several."""
        if stop - start == self.left.shape[0]:
            return self
        diagonal = None if self.diagonal is None else self.diagonal[start:stop]
        first, last = start // self.shared_by, (stop - 1) // self.shared_by
        return LowRankForm(self.left[start:stop], self.right[first : last + 1], diagonal)

    def split(self, size: int) -> "list[LowRankForm]":
        """The whole stack in parts of `size` matrices, some behind one R or all behind several."""
        lefts = torch.split(self.left, size)
        num_right = max(size // self.shared_by, 1)
        rights = torch.split(self.right, num_right)
        diagonals = (
            [None] * len(lefts) if self.diagonal is None else torch.split(self.diagonal, size)
        )
        return [
            LowRankForm(left, rights[part * size // self.shared_by // num_right], diagonal)
            for part, (left, diagonal) in enumerate(zip(lefts, diagonals, strict=True))
        ]

    def addends(self, projections: Tensor) -> tuple[Tensor, ...]:
        """Addends `[B, G*out]` for a single R, `[G / s, B, s*out]` for several; one per step."""
        num_right = self.right.shape[0]
        return projections.unbind(0) if num_right == 1 else addends_of_each(projections, num_right)

    def matmul(self, x: Tensor, addend: Tensor | None = None) -> tuple[Tensor, ...]:
        """`x W_g^T + addend_g` for each g; `addend` as `addends` gives it."""
        return self.expand(self.project(x), x, addend)

    def matmul_through(self, x: Tensor, middle: Callable[[Tensor], Tensor]) -> tuple[Tensor, ...]:
        """The middle is `x R^T` for each R, side by side: `[B, (G/s)*d]`."""
        return self.expand(middle(self.project(x)), x)

    def project(self, x: Tensor) -> Tensor:
        """`x R^T` for each R, side by side: `[B, in]` -> `[B, (G/s)*d]`."""
        return product(x, self._right_transposed)

    def expand(self, inner: Tensor, x: Tensor, addend: Tensor | None = None) -> tuple[Tensor, ...]:
        """`inner L_g^T + x * D_g + addend_g` for each g; `inner` as `project` gives it."""
        num_right, rank, _ = self.right.shape
        if num_right == 1:
            result = product(inner, self._left_transposed[0], addend)
            parts = (result,) if self.shared_by == 1 else result.chunk(self.shared_by, dim=-1)
        else:
            inner = inner.view(-1, num_right, rank).transpose(0, 1)
            parts = _split(product(inner, self._left_transposed, addend), self.shared_by)
        if self.diagonal is None:
            return parts
        return tuple(
            torch.addcmul(part, x, diagonal)
            for part, diagonal in zip(parts, self.diagonal.unbind(0), strict=True)
        )

    def matmul_each(self, x: Tensor, addends: Tensor) -> tuple[Tensor, ...]:
        """`x_g W_g^T + addends_g`, as two batched products."""
        right = (
            self.right.repeat_interleave(self.shared_by, 0) if self.shared_by > 1 else self.right
        )
        result = torch.baddbmm(addends, torch.bmm(x, right.mT), self.left.mT)
        if self.diagonal is not None:
            result = torch.addcmul(result, x, self.diagonal.unsqueeze(1))
        return result.unbind(0)

    def tensors(self) -> tuple[Tensor, ...]:
        """L, R and D where there is one."""
        return (self.left, self.right, *(() if self.diagonal is None else (self.diagonal,)))

    def rebuild(self, tensors: Sequence[Tensor]) -> "LowRankForm":
        """Of other L, R and D."""
        return LowRankForm(*tensors)

    def multiply_adds(self) -> int:
        """One per entry of L, R and D."""
        return sum(tensor.numel() for tensor in self.tensors())

    def whole(self) -> Tensor:
        """`L R + diag(D)`."""
        right = self.right.repeat_interleave(self.shared_by, 0)
        weight = raised(self.left) @ raised(right)
        if self.diagonal is not None:
            weight = weight + torch.diag_embed(raised(self.diagonal))
        return weight.to(self.left.dtype)

    def parts(self) -> Thin:
        """L, R and D."""
        return Thin(self.left, self.right, self.diagonal)

    def for_inference(self) -> Form:
        """Dense matrices where the thin ones do not pay."""
        _, rows, rank = self.left.shape
        if factored_form_pays(rank, min(rows, self.right.shape[-1])):
            return self
        return DenseForm(self.whole())


def _split(result: Tensor, shared_by: int) -> tuple[Tensor, ...]:
    """`[R, B, s*out]` as R * s tensors `[B, out]`."""
    if shared_by == 1:
        return result.unbind(0)
    return tuple(part for first in result.unbind(0) for part in first.chunk(shared_by, dim=-1))
