"""Products of packed rotations by the kernels against single rotations in double precision."""

import pytest
import torch
from torch import Tensor

from models.kernels.library import library
from models.ops.backends import kernels_take
from models.ops.rotations import circle_partners, pair_places, rotation_product

pytestmark = pytest.mark.skipif(library() is None, reason="no C++ compiler here")

SIZES = [(1, 2, 1), (2, 7, 7), (1, 33, 20), (3, 64, 63), (1, 70, 3)]


def signed_angles(sizes: tuple[int, int, int], partners: Tensor) -> Tensor:
    copies, size, stages = sizes
    generator = torch.Generator().manual_seed(0)
    drawn = 6.3 * torch.rand(copies, stages, size // 2, generator=generator, dtype=torch.float64)
    places, signs = pair_places(partners)
    return drawn.gather(2, places.expand(copies, -1, -1)) * signs


def one_by_one(angles: Tensor, partners: Tensor) -> Tensor:
    """Every rotation as a matrix of its own, the first stage to the right."""
    size = angles.shape[-1]
    products: list[Tensor] = []
    for copy in angles:
        product = torch.eye(size, dtype=angles.dtype)
        for stage, partner in zip(copy, partners, strict=True):
            turn = torch.diag(stage.cos())
            swap = torch.zeros(size, size, dtype=angles.dtype)
            swap[torch.arange(size), partner] = 1
            product = (turn + swap * stage.sin().unsqueeze(-1)) @ product
        products.append(product)
    return torch.stack(products)


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_products_and_gradients_are_those_of_single_rotations(
    sizes: tuple[int, int, int], threads: int
) -> None:
    partners = circle_partners(sizes[1], sizes[2])
    exact = signed_angles(sizes, partners).requires_grad_()
    given = exact.detach().float().requires_grad_()
    assert kernels_take(given)
    upstream = torch.randn(sizes[0], sizes[1], sizes[1], generator=torch.Generator().manual_seed(1))
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        found = rotation_product(given, partners)
        (ours,) = torch.autograd.grad((found * upstream).sum(), [given])
    finally:
        torch.set_num_threads(before)
    expected = one_by_one(exact, partners)
    (theirs,) = torch.autograd.grad((expected * upstream).sum(), [exact])
    # A rounding of 6e-8 per stage, and twice that on the way back.
    torch.testing.assert_close(found.double(), expected, atol=4e-6, rtol=0)
    turned = partners != torch.arange(sizes[1])
    scale = theirs.abs().max().item()
    error = ((ours.double() - theirs) * turned).abs().max().item()
    assert error <= 1e-5 * scale
