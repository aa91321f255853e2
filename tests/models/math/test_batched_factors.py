"""Factors are made in as many operations for many matrices, of many members, as for one.

A GPU launches a kernel or two for each. See "Making of factors" in deploy/docs/benchmarks/gpu.md.
"""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from models.math.householder import (
    reflector_diagonal_low_rank,
    reflector_weight,
    svd_diagonal_low_rank,
    svd_weight,
)

Make = Callable[..., Tensor | tuple[Tensor, ...]]
MAKERS: dict[str, Make] = {
    "svd, low rank": svd_diagonal_low_rank,
    "svd, whole": svd_weight,
    "reflectors, low rank": lambda u, _, sigma: reflector_diagonal_low_rank(u, sigma),
    "reflectors, whole": lambda u, _, sigma: reflector_weight(u, sigma),
}
MOST = 120
"""Operations of both passes, views of tensors not among them."""


class _Count(TorchDispatchMode):
    """Operations that a GPU would launch something for."""

    def __init__(self) -> None:
        super().__init__()
        self.launches = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        found = func(*args, **(kwargs or {}))
        if not func.is_view and "empty" not in func.name():
            self.launches += 1
        return found


def launches(make: Make, *, gates: int, members: int, size: int, count: int) -> int:
    shapes = (gates, count, size), (gates, count, size), (gates, size)
    drawn = [torch.empty(members, *shape, device="meta", requires_grad=True) for shape in shapes]
    with _Count() as counter:
        found = torch.vmap(make)(*drawn) if members > 1 else make(*(one[0] for one in drawn))
        parts = (found,) if isinstance(found, Tensor) else found
        torch.stack([part.sum() for part in parts]).sum().backward()
    assert all(one.grad is not None for one in drawn if one is not drawn[1])
    return counter.launches


@pytest.mark.parametrize("name", MAKERS)
def test_more_matrices_members_or_reflectors_are_no_more_launches(name: str) -> None:
    one = launches(MAKERS[name], gates=1, members=1, size=64, count=4)
    assert one == launches(MAKERS[name], gates=4, members=1, size=256, count=16)
    stacked = launches(MAKERS[name], gates=4, members=16, size=256, count=16)
    # A few more to carry the members' axis.
    assert stacked <= one + 20
    assert stacked <= MOST
