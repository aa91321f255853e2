"""The papers' own way: every reflector applied to every state, one after the other."""

from collections.abc import Sequence

import torch
from torch import Tensor

from models.linear import StructuredLinear
from models.parametrizations.householder_svd import HouseholderSvdLinear


class ReflectorLoop:
    """`W h = U (s * (V^T h))` for each copy, by one rank-1 update per reflector.

    `h - (h z) z^T` with z of length sqrt(2), scaled once for all steps, as an autograd user writes
    it; with `lean` in two operations per reflector, the loop at its best. 1 x 1 reflectors are not
    among them.
    """

    def __init__(self, linear: StructuredLinear, *, lean: bool) -> None:
        assert isinstance(linear, HouseholderSvdLinear)
        self._reflected = _reflected_lean if lean else _reflected
        self._u = _scaled(linear.u.rows())
        self._v = _scaled(linear.v.rows())
        self.values = linear.singular_values().unbind(0)

    def apply(self, state: Tensor, copy: int) -> Tensor:
        """`[B, n]` -> `[B, n]`."""
        # V^T = H(v_last) ... H(v_0), so the first reflector comes first; of U the last one.
        for z in self._v[copy]:
            state = self._reflected(state, z)
        state = state * self.values[copy]
        for z in reversed(self._u[copy]):
            state = self._reflected(state, z)
        return state


def _scaled(rows: Tensor) -> Sequence[Sequence[Tensor]]:
    """Rows `[G, m, n]` of length sqrt(2), so that a reflector is `I - z z^T`."""
    rows = rows * (2**0.5 / rows.norm(dim=-1, keepdim=True))
    return [copy.unbind(0) for copy in rows.unbind(0)]


def _reflected(state: Tensor, z: Tensor) -> Tensor:
    return state - torch.outer(state @ z, z)


def _reflected_lean(state: Tensor, z: Tensor) -> Tensor:
    return torch.addr(state, state @ z, z, alpha=-1)
