"""The two forms in which G matrices are applied: dense, and low rank plus a diagonal.

Whatever a parametrization stores, it reaches the recurrences as one of these. They are made once
per forward pass, are differentiable, and hold what every step of a sequence needs, so that a step
is a few matrix products whatever the parametrization.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import Tensor


def factored_form_pays(rank: int, size: int) -> bool:
    """Whether products through diagonal + rank d beat an n x n one: `2 d + 32 <= n`.

    The measured crossover of training and inference with our kernels on CPUs
    (tests/benchmarks/forms.py): the two thin products cost as much as a dense one that is 32
    columns narrower, whatever n is.
    """
    return 2 * rank + 32 <= size


class Factors(Protocol):
    """G matrices W_g of shape [out, in], ready to be applied step by step."""

    def select(self, start: int, stop: int) -> "Factors":
        """The matrices start..stop-1 of the stack."""
        ...

    def split(self, size: int) -> "Sequence[Factors]":
        """The whole stack in parts of `size` matrices, the first ones first.

        Unlike `select` in a loop, whose backward pass is quadratic in the number of parts: each
        pads its gradient to the whole stack.
        """
        ...

    def arrange(self, projections: Tensor) -> tuple[Tensor, ...]:
        """Cut input projections `[T, B, G*out]` into the T addends that `advance` takes."""
        ...

    def advance(self, state: Tensor, addend: Tensor | None = None) -> tuple[Tensor, ...]:
        """`state W_g^T + addend_g` for each g, as G tensors `[B, out]`; `state` is `[B, in]`."""
        ...

    def advance_each(self, states: Tensor, addends: Tensor) -> tuple[Tensor, ...]:
        """`states_g W_g^T + addends_g` for each g; `states` is `[G, B, in]`, `addends` alike."""
        ...


def arrange_each(projections: Tensor, copies: int) -> tuple[Tensor, ...]:
    """Cut input projections `[T, B, G*out]` into T addends `[G, B, out]`."""
    steps, batch, width = projections.shape
    by_copy = projections.view(steps, batch, copies, width // copies)
    return by_copy.transpose(1, 2).unbind(0)


@dataclass(frozen=True, eq=False)
class DenseFactors:
    """Materialised matrices: all G in one product."""

    weight: Tensor
    """[G, out, in]"""
    _transposed: Tensor = field(init=False)

    def __post_init__(self) -> None:
        # Not a cached property: the lock of Python 3.11's own keeps torch.compile from tracing it.
        object.__setattr__(self, "_transposed", self.weight.flatten(0, 1).t())

    def select(self, start: int, stop: int) -> "DenseFactors":
        """The matrices start..stop-1 of the stack."""
        if stop - start == self.weight.shape[0]:
            return self
        return DenseFactors(self.weight[start:stop])

    def split(self, size: int) -> "list[DenseFactors]":
        """The whole stack in parts of `size` matrices."""
        return [DenseFactors(part) for part in torch.split(self.weight, size)]

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

    def advance_each(self, states: Tensor, addends: Tensor) -> tuple[Tensor, ...]:
        """`states_g W_g^T + addends_g`, as one batched product."""
        return torch.baddbmm(addends, states, self.weight.mT).unbind(0)


@dataclass(frozen=True, eq=False)
class LowRankFactors:
    """`W_g = L_g R_g + diag(D_g)`, applied through its factors; W is never formed.

    Consecutive matrices may share one R, which is then applied once for all of them.
    """

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
        readers, rank, _ = self.right.shape
        object.__setattr__(self, "_right_transposed", self.right.flatten(0, 1).t())
        object.__setattr__(self, "_left_transposed", self.left.reshape(readers, -1, rank).mT)

    @property
    def shared_by(self) -> int:
        """How many matrices read through one R."""
        return self.left.shape[0] // self.right.shape[0]

    def select(self, start: int, stop: int) -> "LowRankFactors":
        """The matrices start..stop-1 of the stack, some behind one R or all behind several."""
        if stop - start == self.left.shape[0]:
            return self
        diagonal = None if self.diagonal is None else self.diagonal[start:stop]
        first, last = start // self.shared_by, (stop - 1) // self.shared_by
        return LowRankFactors(self.left[start:stop], self.right[first : last + 1], diagonal)

    def split(self, size: int) -> "list[LowRankFactors]":
        """The whole stack in parts of `size` matrices, some behind one R or all behind several."""
        lefts = torch.split(self.left, size)
        readers = max(size // self.shared_by, 1)
        rights = torch.split(self.right, readers)
        diagonals = (
            [None] * len(lefts) if self.diagonal is None else torch.split(self.diagonal, size)
        )
        return [
            LowRankFactors(left, rights[part * size // self.shared_by // readers], diagonal)
            for part, (left, diagonal) in enumerate(zip(lefts, diagonals, strict=True))
        ]

    def arrange(self, projections: Tensor) -> tuple[Tensor, ...]:
        """Addends `[B, G*out]` for a single R, `[G / s, B, s*out]` for several; one per step."""
        readers = self.right.shape[0]
        return projections.unbind(0) if readers == 1 else arrange_each(projections, readers)

    def advance(self, state: Tensor, addend: Tensor | None = None) -> tuple[Tensor, ...]:
        """`state W_g^T + addend_g` for each g; `addend` as `arrange` gives it."""
        return self.expand(self.project(state), state, addend)

    def project(self, state: Tensor) -> Tensor:
        """`state R^T` for each R, side by side: `[B, in]` -> `[B, (G/s)*d]`."""
        return state @ self._right_transposed

    def expand(
        self, inner: Tensor, state: Tensor, addend: Tensor | None = None
    ) -> tuple[Tensor, ...]:
        """`inner L_g^T + state * D_g + addend_g` for each g; `inner` as `project` gives it."""
        readers, rank, _ = self.right.shape
        if readers == 1:
            left = self._left_transposed[0]
            result = inner @ left if addend is None else torch.addmm(addend, inner, left)
            parts = (result,) if self.shared_by == 1 else result.chunk(self.shared_by, dim=-1)
        else:
            inner = inner.view(-1, readers, rank).transpose(0, 1)
            result = (
                torch.bmm(inner, self._left_transposed)
                if addend is None
                else torch.baddbmm(addend, inner, self._left_transposed)
            )
            parts = _split(result, self.shared_by)
        if self.diagonal is None:
            return parts
        return tuple(
            torch.addcmul(part, state, diagonal)
            for part, diagonal in zip(parts, self.diagonal.unbind(0), strict=True)
        )

    def advance_each(self, states: Tensor, addends: Tensor) -> tuple[Tensor, ...]:
        """`states_g W_g^T + addends_g`, as two batched products."""
        right = (
            self.right.repeat_interleave(self.shared_by, 0) if self.shared_by > 1 else self.right
        )
        result = torch.baddbmm(addends, torch.bmm(states, right.mT), self.left.mT)
        if self.diagonal is not None:
            result = torch.addcmul(result, states, self.diagonal.unsqueeze(1))
        return result.unbind(0)


def _split(result: Tensor, shared_by: int) -> tuple[Tensor, ...]:
    """`[R, B, s*out]` as R * s tensors `[B, out]`."""
    if shared_by == 1:
        return result.unbind(0)
    return tuple(part for reader in result.unbind(0) for part in reader.chunk(shared_by, dim=-1))


@dataclass(frozen=True, eq=False)
class MaskedFactors:
    """Matrices that see only what a dropout mask leaves of the state: `(mask * state) W_g^T`.

    One mask for a whole sequence, shared by all matrices or one for each (Gal and Ghahramani,
    arXiv:1512.05287).
    """

    inner: Factors
    mask: Tensor
    """[1, B, in] for one mask, [G, B, in] for one per matrix"""

    @property
    def _tied(self) -> bool:
        return self.mask.shape[0] == 1

    def select(self, start: int, stop: int) -> "MaskedFactors":
        """The matrices start..stop-1 of the stack, with their masks."""
        mask = self.mask if self._tied else self.mask[start:stop]
        return MaskedFactors(self.inner.select(start, stop), mask)

    def split(self, size: int) -> "list[MaskedFactors]":
        """The whole stack in parts of `size` matrices, with their masks."""
        parts = self.inner.split(size)
        masks = [self.mask] * len(parts) if self._tied else torch.split(self.mask, size)
        return [MaskedFactors(part, mask) for part, mask in zip(parts, masks, strict=True)]

    def arrange(self, projections: Tensor) -> tuple[Tensor, ...]:
        """As the matrices take them; `[G, B, out]` where each has its own mask."""
        if self._tied:
            return self.inner.arrange(projections)
        return arrange_each(projections, self.mask.shape[0])

    def advance(self, state: Tensor, addend: Tensor | None = None) -> tuple[Tensor, ...]:
        """`(mask_g * state) W_g^T + addend_g` for each g; `addend` as `arrange` gives it."""
        if self._tied:
            return self.inner.advance(self.mask[0] * state, addend)
        states = self.mask * state
        if addend is None:
            addend = states.new_zeros(())
        return self.inner.advance_each(states, addend)

    def advance_each(self, states: Tensor, addends: Tensor) -> tuple[Tensor, ...]:
        """`(mask_g * states_g) W_g^T + addends_g` for each g."""
        return self.inner.advance_each(self.mask * states, addends)
