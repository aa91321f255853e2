import itertools

import pytest
import torch

from models.math.rotations import circle_partners, pair_places, rotation_product, stage_count
from tests.models import reference

Pairs = list[list[tuple[int, int]]]


def signed_angles(size: int, stages: Pairs, theta: torch.Tensor) -> torch.Tensor:
    """An angle per coordinate of angles `[K, floor(n / 2)]` per pair."""
    angles = theta.new_zeros(1, len(stages), size)
    for stage, pairs in enumerate(stages):
        for place, (a, b) in enumerate(pairs):
            angles[0, stage, a], angles[0, stage, b] = theta[stage, place], -theta[stage, place]
    return angles


def random_angles(size: int, count: int, seed: int = 1) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return 6 * torch.rand(count, size // 2, generator=generator, dtype=torch.float64)


@pytest.mark.parametrize("size", range(2, 34))
def test_schedule_has_every_pair_once_in_stages_of_disjoint_pairs(size: int) -> None:
    partners = circle_partners(size, stage_count(size)).tolist()
    assert len(partners) == (size - 1 if size % 2 == 0 else size)
    found: list[tuple[int, int]] = []
    for stage in partners:
        assert [stage[partner] for partner in stage] == list(range(size))
        assert sum(partner == i for i, partner in enumerate(stage)) == size % 2
        found += [(i, partner) for i, partner in enumerate(stage) if i < partner]
    assert sorted(found) == list(itertools.combinations(range(size), 2))


@pytest.mark.parametrize("size", range(2, 34))
def test_schedule_is_the_circle_method_pair_by_pair(size: int) -> None:
    stages = reference.circle_schedule(size)
    partners = circle_partners(size, len(stages))
    places, signs = pair_places(partners)
    for stage, pairs in enumerate(stages):
        alone = set(range(size))
        for place, (a, b) in enumerate(pairs):
            assert (partners[stage, a], partners[stage, b]) == (b, a)
            assert places[stage, a] == places[stage, b] == place
            assert (signs[stage, a], signs[stage, b]) == (1, -1)
            alone -= {a, b}
        for rest in alone:
            assert partners[stage, rest] == rest
            assert signs[stage, rest] == 0
            assert 0 <= places[stage, rest] < len(pairs)


@pytest.mark.parametrize("size", [6, 7])
def test_the_first_stages_do_not_depend_on_how_many_there_are(size: int) -> None:
    every = circle_partners(size, stage_count(size))
    for count in range(1, stage_count(size)):
        assert torch.equal(circle_partners(size, count), every[:count])


def test_a_large_size_is_scheduled_no_further_than_asked() -> None:
    partners = circle_partners(65_536, 2)
    assert partners.shape == (2, 65_536)
    assert torch.equal(partners.gather(1, partners), torch.arange(65_536).expand(2, -1))


@pytest.mark.parametrize(("size", "count"), [(2, 1), (3, 3), (6, 2), (6, 5), (7, 7), (9, 4)])
def test_product_and_gradient_are_those_of_single_rotations(size: int, count: int) -> None:
    stages = reference.circle_schedule(size)[:count]
    partners = circle_partners(size, count)
    theta = torch.stack([random_angles(size, count, seed) for seed in (1, 2)])
    upstream = torch.randn(2, size, size, dtype=torch.float64)
    gradients: list[torch.Tensor] = []
    products: list[torch.Tensor] = []
    angles = theta.clone().requires_grad_()
    products.append(
        torch.stack([reference.rotation_product(size, stages, each) for each in angles])
    )
    gradients += torch.autograd.grad((products[0] * upstream).sum(), angles)
    angles = theta.clone().requires_grad_()
    signed = torch.cat([signed_angles(size, stages, each) for each in angles])
    products.append(rotation_product(signed, partners))
    gradients += torch.autograd.grad((products[1] * upstream).sum(), angles)
    torch.testing.assert_close(products[1], products[0], atol=1e-13, rtol=0)
    torch.testing.assert_close(gradients[1], gradients[0], atol=1e-12, rtol=0)


def test_operator_is_declared_as_it_behaves() -> None:
    angles = signed_angles(5, reference.circle_schedule(5)[:3], random_angles(5, 3))
    arguments = (angles.requires_grad_(), circle_partners(5, 3))
    operator = torch.ops.reflectory.rotation_product.default
    results = torch.library.opcheck(operator, arguments)
    assert set(results.values()) == {"SUCCESS"}


def test_many_stages_stay_orthogonal() -> None:
    stages = reference.circle_schedule(64)
    angles = signed_angles(64, stages, random_angles(64, 63))
    product = rotation_product(angles, circle_partners(64, 63))[0]
    identity = torch.eye(64, dtype=torch.float64)
    torch.testing.assert_close(product @ product.T, identity, atol=1e-12, rtol=0)
    assert torch.linalg.det(product).item() == pytest.approx(1)


@pytest.mark.parametrize("compiled", [False, True])
def test_backward_pass_keeps_one_matrix_whatever_the_number_of_stages(compiled: bool) -> None:
    size = 32
    saved: dict[int, int] = {}
    for count in (1, 31):
        torch.compiler.reset()
        stages = reference.circle_schedule(size)[:count]
        angles = signed_angles(size, stages, random_angles(size, count)).requires_grad_()
        total = 0

        def note(tensor: torch.Tensor) -> torch.Tensor:
            nonlocal total
            total += tensor.shape[-2:] == (size, size)
            return tensor

        run = (
            torch.compile(rotation_product, backend="aot_eager", fullgraph=True)
            if compiled
            else rotation_product
        )
        with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
            run(angles, circle_partners(size, count))
        saved[count] = total
    assert saved == {1: 1, 31: 1}
