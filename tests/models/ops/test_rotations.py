import itertools

import pytest
import torch

from models.ops.rotations import circle_schedule, stage_count
from models.parametrizations import PackedRotations
from tests.models.reference import rotation_product


@pytest.mark.parametrize("size", [*range(1, 18), 31, 32, 128])
def test_schedule_has_every_pair_once_in_stages_of_disjoint_pairs(size: int) -> None:
    stages = circle_schedule(size)
    assert len(stages) == stage_count(size)
    for stage in stages:
        assert len(stage) == size // 2
        assert len({coordinate for pair in stage for coordinate in pair}) == 2 * (size // 2)
    pairs = sorted(pair for stage in stages for pair in stage)
    assert pairs == list(itertools.combinations(range(size), 2))


@pytest.mark.parametrize(("size", "count"), [(2, 1), (3, 3), (6, 2), (6, 5), (7, 7), (9, 4)])
def test_product_is_that_of_single_rotations_stage_by_stage(size: int, count: int) -> None:
    generator = torch.Generator().manual_seed(1)
    linear = PackedRotations(count=count).build(size, size, copies=2, generator=generator).double()
    theta = linear.get_parameter("theta")
    for copy, weight in enumerate(linear.dense_weight()):
        expected = rotation_product(size, circle_schedule(size)[:count], theta[copy])
        torch.testing.assert_close(weight, expected, atol=1e-13, rtol=0)


@pytest.mark.parametrize(("size", "count"), [(5, 5), (8, 7)])
def test_gradient_is_that_of_the_stage_by_stage_product(size: int, count: int) -> None:
    linear = PackedRotations(count=count).build(size, size).double()
    theta = linear.get_parameter("theta")
    upstream = torch.randn(size, size, dtype=torch.float64)
    (linear.dense_weight()[0] * upstream).sum().backward()
    plain = theta.detach().clone().requires_grad_()
    product = rotation_product(size, circle_schedule(size)[:count], plain[0])
    (product * upstream).sum().backward()
    assert theta.grad is not None
    assert plain.grad is not None
    torch.testing.assert_close(theta.grad, plain.grad, atol=1e-12, rtol=0)


def test_backward_pass_keeps_one_matrix_whatever_the_number_of_stages() -> None:
    saved: dict[int, int] = {}
    for count in (1, 31):
        linear = PackedRotations(count=count).build(32, 32)
        total = 0

        def note(tensor: torch.Tensor) -> torch.Tensor:
            nonlocal total
            if tensor.shape[-2:] == (32, 32) and tensor.is_floating_point():
                total += 1
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
            linear.factors()
        saved[count] = total
    assert saved == {1: 1, 31: 1}
