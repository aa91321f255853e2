"""Packed rotations: disjoint plane rotations, applied a whole stage at a time.

Equation numbers refer to README.md.
"""

from typing import Any

import torch
from torch import Tensor

from models.kernels.choice import kernels_take
from models.kernels.members import folded, unfolded
from models.kernels.rotations import ROTATED, rotations_backward, rotations_forward


def stage_count(size: int) -> int:
    """How many stages the schedule has: n - 1 for even n, n for odd n, none for n = 1."""
    if size < 2:
        return 0
    return size - 1 if size % 2 == 0 else size


def circle_partners(size: int, count: int) -> Tensor:
    """Whom each coordinate is paired with in the first `count` stages: `[count, n]`, integers.

    The circle method of round-robin tournaments (eq. 20): all stages together pair every two
    coordinates once. In a stage of an odd n one coordinate is alone, and its own partner.
    """
    odd = size - (size + 1) % 2
    coordinate = torch.arange(size)
    if coordinate.is_meta:
        # Without memory there is nothing to compute, and torch takes long to find that out.
        return coordinate.new_empty(count, size)
    stage = torch.arange(count).unsqueeze(1)
    partners = (stage - coordinate) % odd
    if size % 2 == 0:
        # The last coordinate stands outside the circle and takes the one that would be alone.
        last, inside = size - 1, coordinate < size - 1
        partners = torch.where((partners == coordinate) & inside, last, partners)
        alone = stage * (size // 2) % odd
        partners = torch.where(inside, partners, alone)
    return partners


def pair_places(partners: Tensor) -> tuple[Tensor, Tensor]:
    """For each stage and coordinate, the place of its pair in the stage, and its angle's sign.

    Pairs stand in the order of their larger coordinates. The smaller coordinate of a pair has sign
    1, the larger one -1; one that is alone has sign 0. `partners` is `[K, n]`, and so are both.
    """
    coordinate = torch.arange(partners.shape[1], device=partners.device)
    signs = (partners - coordinate).sign()
    place_by_larger = (signs < 0).cumsum(1) - 1
    places = place_by_larger.gather(1, torch.maximum(partners, coordinate))
    return places.clamp(min=0), signs


def rotation_product(angles: Tensor, partners: Tensor) -> Tensor:
    """`P_{K-1} ... P_1 P_0` as matrices `[G, n, n]` (eq. 7): stage 0 acts first.

    Stage k maps x to `y_i = cos(angles[k, i]) x_i + sin(angles[k, i]) x_{partners[k, i]}`. The
    angles `[G, K, n]` are signed: the two coordinates of a pair have opposite ones, a coordinate
    that is alone has 0 and is its own partner. `partners` is `[K, n]`.
    """
    return _product(angles, partners)


# Operators of their own rather than an autograd.Function: a compiler takes each for one node, and
# neither unrolls the stages nor sees the backward pass's in-place steps.
@torch.library.custom_op("reflectory::rotation_product", mutates_args=())
def _product(angles: Tensor, partners: Tensor) -> Tensor:
    if kernels_take(angles, ROTATED):
        return rotations_forward(angles, partners)
    num_matrices, _, size = angles.shape
    product = torch.eye(size, dtype=angles.dtype, device=angles.device)
    product = product.expand(num_matrices, size, size).contiguous()
    swapped = torch.empty_like(product)
    for cos, sin, partner in _stages(angles, partners):
        torch.index_select(product, 1, partner, out=swapped)
        product.mul_(cos).addcmul_(sin, swapped)
    return product


@torch.library.custom_op("reflectory::rotation_product_backward", mutates_args=())
def _product_backward(
    gradient: Tensor, angles: Tensor, partners: Tensor, product: Tensor
) -> Tensor:
    """Rotations can be undone: this walks back from the product (eq. 8), and no stage is stored."""
    if kernels_take(angles, ROTATED):
        return rotations_backward(gradient, angles, partners, product)
    both = torch.stack((product, gradient))
    swapped = torch.empty_like(both)
    # Rows of a stack of matrices are picked twice as fast as those of a stack of stacks.
    matrices, swapped_matrices = both.flatten(0, 1), swapped.flatten(0, 1)
    by_stage: list[Tensor] = []
    for cos, sin, partner in reversed(_stages(angles, partners)):
        torch.index_select(matrices, 1, partner, out=swapped_matrices)
        by_stage.append((both[1] * swapped[0]).sum(-1))
        both.mul_(cos).addcmul_(sin, swapped, value=-1)
    return torch.stack(by_stage[::-1], dim=1)


def _product_shape(angles: Tensor, partners: Tensor) -> Tensor:  # noqa: ARG001 -- the operator's
    num_matrices, _, size = angles.shape
    return angles.new_empty(num_matrices, size, size)


def _gradient_shape(
    gradient: Tensor,  # noqa: ARG001 -- the operator's signature
    angles: Tensor,
    partners: Tensor,  # noqa: ARG001
    product: Tensor,  # noqa: ARG001
) -> Tensor:
    return torch.empty_like(angles, memory_format=torch.contiguous_format)


def _keep(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
    ctx.save_for_backward(*inputs, output)


def _differentiate(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
    return _product_backward(gradient, *ctx.saved_tensors), None


_product.register_fake(_product_shape)  # pyright: ignore[reportUnknownMemberType] -- untyped
_product_backward.register_fake(_gradient_shape)  # pyright: ignore[reportUnknownMemberType] -- untyped
_product.register_autograd(_differentiate, setup_context=_keep)  # pyright: ignore[reportUnknownMemberType] -- untyped


def _of_members(
    info: Any, in_dims: tuple[Any, ...], angles: Tensor, partners: Tensor
) -> tuple[Any, int]:
    """Members' matrices are matrices, rotated by one schedule: one call for all of them."""
    if in_dims[1] is not None:
        raise ValueError("members of one stack have one schedule of rotations")
    product = _product(folded(angles, in_dims[0], info.batch_size), partners)
    return unfolded(product, info.batch_size), 0


_product.register_vmap(_of_members)  # pyright: ignore[reportUnknownMemberType] -- untyped


def _stages(angles: Tensor, partners: Tensor) -> list[tuple[Tensor, Tensor, Tensor]]:
    """(cos, sin, partner) of every stage; cos and sin are `[G, n, 1]`."""
    cos, sin = angles.cos().unsqueeze(-1), angles.sin().unsqueeze(-1)
    return list(zip(cos.unbind(1), sin.unbind(1), partners.unbind(0), strict=True))
