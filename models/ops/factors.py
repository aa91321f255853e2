"""The two forms in which G matrices are applied: dense, and low rank plus a diagonal.

Whatever a parametrization stores, it reaches the recurrences as one of these. They are made once
per forward pass, are differentiable, and hold what every step of a sequence needs, so that a step
is a few matrix products whatever the parametrization.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import torch
from torch import Tensor

LARGEST_RANK_SHARE = 0.4
SMALLEST_FACTORED_SIZE = 96


def factored_form_pays(rank: int, size: int) -> bool:
    """Whether products through diagonal + rank d beat an n x n one: d <= 0.4 n and n >= 96.

    The measured crossover of training and inference on CPU. Below it the two thin products cost
    more in operator overhead than they save in arithmetic.
    """
    return rank <= LARGEST_RANK_SHARE * size and size >= SMALLEST_FACTORED_SIZE


class Factors(Protocol):
    """G matrices W_g of shape [out, in], ready to be applied step by step."""

    def select(self, start: int, stop: int) -> "Factors":
        """The matrices start..stop-1 of the stack."""
        ...

    def arrange(self, projections: Tensor) -> tuple[Tensor, ...]:
        """Cut input projections `[T, B, G*out]` into the T addends that `advance` takes."""
        ...

    def advance(self, state: Tensor, addend: Tensor | None = None) -> tuple[Tensor, ...]:
        """`state W_g^T + addend_g` for each g, as G tensors `[B, out]`; `state` is `[B, in]`."""
        ...


@dataclass(frozen=True, eq=False)
class DenseFactors:
    """Materialised matrices: all G in one product."""

    weight: Tensor
    """[G, out, in]"""

    @cached_property
    def _transposed(self) -> Tensor:
        return self.weight.flatten(0, 1).t()

    def select(self, start: int, stop: int) -> "DenseFactors":
        """The matrices start..stop-1 of the stack."""
        return DenseFactors(self.weight[start:stop])

    def arrange(self, projections: Tensor) -> tuple[Tensor, ...]:
        """Addends `[B, G*out]`, one per step."""
        # Indexing in the loop would make the backward pass quadratic in T: each index pads a
        # gradient to [T, ...].
        return projections.unbind(0)

    def advance(self, state: Tensor, addend: Tensor | None = None) -> tuple[Tensor, ...]:
        """`state W_g^T + addend_g` for each g; `addend` is `[B, G*out]`."""
        result = (
            state @ self._transposed
            if addend is None
            else torch.addmm(addend, state, self._transposed)
        )
        copies = self.weight.shape[0]
        return (result,) if copies == 1 else result.chunk(copies, dim=-1)


@dataclass(frozen=True, eq=False)
class LowRankFactors:
    """`W_g = L_g R_g + diag(D_g)`, applied through its factors; W is never formed."""

    left: Tensor
    """L [G, out, d]"""
    right: Tensor
    """R [G, d, in]"""
    diagonal: Tensor | None = None
    """D [G, out], for square matrices"""

    @cached_property
    def _right_transposed(self) -> Tensor:
        return self.right.flatten(0, 1).t()

    @cached_property
    def _left_transposed(self) -> Tensor:
        return self.left.mT

    def select(self, start: int, stop: int) -> "LowRankFactors":
        """The matrices start..stop-1 of the stack."""
        diagonal = None if self.diagonal is None else self.diagonal[start:stop]
        return LowRankFactors(self.left[start:stop], self.right[start:stop], diagonal)

    def arrange(self, projections: Tensor) -> tuple[Tensor, ...]:
        """Addends `[B, out]` for a single matrix, `[G, B, out]` for several; one per step."""
        copies, out_features, _ = self.left.shape
        if copies == 1:
            return projections.unbind(0)
        by_copy = projections.view(*projections.shape[:2], copies, out_features)
        return by_copy.transpose(1, 2).unbind(0)

    def advance(self, state: Tensor, addend: Tensor | None = None) -> tuple[Tensor, ...]:
        """`state W_g^T + addend_g` for each g; `addend` as `arrange` gives it."""
        inner = state @ self._right_transposed
        if self.left.shape[0] == 1:
            return (self._single(state, inner, addend),)
        copies, _, rank = self.left.shape
        inner = inner.view(-1, copies, rank).transpose(0, 1)
        result = (
            torch.bmm(inner, self._left_transposed)
            if addend is None
            else torch.baddbmm(addend, inner, self._left_transposed)
        )
        if self.diagonal is not None:
            result = torch.addcmul(result, state, self.diagonal.unsqueeze(1))
        return result.unbind(0)

    def _single(self, state: Tensor, inner: Tensor, addend: Tensor | None) -> Tensor:
        left = self._left_transposed[0]
        result = inner @ left if addend is None else torch.addmm(addend, inner, left)
        if self.diagonal is not None:
            result = torch.addcmul(result, state, self.diagonal)
        return result
