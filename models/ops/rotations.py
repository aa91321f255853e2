"""Packed rotations: disjoint plane rotations, applied a whole stage at a time.

Equation numbers refer to README.md.
"""

from collections.abc import Callable
from typing import Any, cast

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable


def stage_count(size: int) -> int:
    """How many stages the schedule has: n - 1 for even n, n for odd n, none for n = 1."""
    if size < 2:
        return 0
    return size - 1 if size % 2 == 0 else size


def circle_schedule(size: int) -> list[list[tuple[int, int]]]:
    """Every pair (a, b), a < b, of coordinates once, in stages of floor(n / 2) disjoint pairs.

    The circle method of round-robin tournaments. An odd n gets a dummy coordinate, so that each
    stage leaves one coordinate alone.
    """
    even = size + size % 2
    stages: list[list[tuple[int, int]]] = [[] for _ in range(stage_count(size))]
    for b in range(1, size):
        for a in range(b):
            stage = (a + b) % (even - 1) if b < even - 1 else (2 * a) % (even - 1)
            stages[stage].append((a, b))
    return stages


def rotation_product(angles: Tensor, partners: Tensor) -> Tensor:
    """`P_{K-1} ... P_1 P_0` as matrices `[G, n, n]` (eq. 7): stage 0 acts first.

    Stage k maps x to `y_i = cos(angles[k, i]) x_i + sin(angles[k, i]) x_{partners[k, i]}`. The
    angles `[G, K, n]` are signed: the two coordinates of a pair have opposite ones, a coordinate
    that is alone has 0 and is its own partner. `partners` is `[K, n]`.
    """
    apply = cast(
        Callable[[Tensor, Tensor], Tensor],
        _RotationProduct.apply,  # pyright: ignore[reportUnknownMemberType] -- untyped
    )
    return apply(angles, partners)


class _RotationProduct(torch.autograd.Function):
    """Rotations can be undone: the backward pass walks back from the product, storing no stage."""

    @staticmethod
    def forward(ctx: Any, angles: Tensor, partners: Tensor) -> Tensor:
        copies, _, size = angles.shape
        product = torch.eye(size, dtype=angles.dtype, device=angles.device)
        product = product.expand(copies, size, size).contiguous()
        swapped = torch.empty_like(product)
        for cos, sin, partner in _stages(angles, partners):
            torch.index_select(product, 1, partner, out=swapped)
            product.mul_(cos).addcmul_(sin, swapped)
        ctx.save_for_backward(angles, partners, product)
        return product

    @staticmethod
    @once_differentiable
    def backward(  # pyright: ignore[reportIncompatibleMethodOverride] -- the decorator's signature
        ctx: Any, gradient: Tensor
    ) -> tuple[Tensor, None]:
        angles: Tensor
        partners: Tensor
        product: Tensor
        angles, partners, product = ctx.saved_tensors
        both = torch.stack((product, gradient))
        swapped = torch.empty_like(both)
        by_stage: list[Tensor] = []
        for cos, sin, partner in reversed(_stages(angles, partners)):
            torch.index_select(both, 2, partner, out=swapped)
            by_stage.append((both[1] * swapped[0]).sum(-1))
            both.mul_(cos).addcmul_(sin, swapped, value=-1)
        return torch.stack(by_stage[::-1], dim=1), None


def _stages(angles: Tensor, partners: Tensor) -> list[tuple[Tensor, Tensor, Tensor]]:
    """(cos, sin, partner) of every stage; cos and sin are `[G, n, 1]`."""
    cos, sin = angles.cos().unsqueeze(-1), angles.sin().unsqueeze(-1)
    return list(zip(cos.unbind(1), sin.unbind(1), partners.unbind(0), strict=True))
