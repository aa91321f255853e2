"""Products of packed rotations by the kernels against single rotations in double precision."""

import pytest
import torch
from torch import Tensor

from models.kernels.choice import kernels_take, prefer
from models.kernels.library import library
from models.kernels.rotations import ROTATED
from models.math.rotations import circle_partners, pair_places, rotation_product

pytestmark = pytest.mark.skipif(library() is None, reason="no C++ compiler here")

SIZES = [(1, 2, 1), (2, 7, 7), (1, 33, 20), (3, 64, 63), (1, 70, 3)]


def signed_angles(sizes: tuple[int, int, int], partners: Tensor) -> Tensor:
    num_matrices, size, stages = sizes
    generator = torch.Generator().manual_seed(0)
    drawn = 6.3 * torch.rand(
        num_matrices, stages, size // 2, generator=generator, dtype=torch.float64
    )
    places, signs = pair_places(partners)
    return drawn.gather(2, places.expand(num_matrices, -1, -1)) * signs


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
@pytest.mark.parametrize("dtype", ROTATED, ids=str)
def test_products_and_gradients_are_those_of_single_rotations(
    dtype: torch.dtype, sizes: tuple[int, int, int], threads: int
) -> None:
    partners = circle_partners(sizes[1], sizes[2])
    exact = signed_angles(sizes, partners).requires_grad_()
    given = exact.detach().to(dtype).requires_grad_()
    assert kernels_take(given, ROTATED)
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
    # A rounding of half of that per stage, and twice as much on the way back.
    rounding = torch.finfo(dtype).eps
    torch.testing.assert_close(found.double(), expected, atol=32 * rounding, rtol=0)
    turned = partners != torch.arange(sizes[1])
    scale = theirs.abs().max().item()
    error = ((ours.double() - theirs) * turned).abs().max().item()
    assert error <= 80 * rounding * scale


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_sweeps_turn_as_single_operations_do(sizes: tuple[int, int, int], threads: int) -> None:
    num_matrices, size, count = sizes
    # Whoever has torch alone runs all else here.
    fits = pytest.importorskip("models.compression.orthogonal.rotations", exc_type=ImportError)
    stages, generator = fits.Stages(size, count), torch.Generator().manual_seed(2)
    angles = 6.3 * torch.rand(
        num_matrices, count, size // 2, generator=generator, dtype=torch.float64
    )
    matrix = torch.randn(num_matrices, size, size, generator=generator, dtype=torch.float64)
    assert kernels_take(matrix, [torch.float64])
    product, ours, theirs = stages.product(angles), angles.clone(), angles.clone()
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        stages.sweep_(ours, matrix, product)
    finally:
        torch.set_num_threads(before)
    with prefer("torch"):
        stages.sweep_(theirs, matrix, product)
    # Of angles that differ by whole turns the products are the same.
    torch.testing.assert_close(stages.product(ours), stages.product(theirs), atol=1e-9, rtol=0)
