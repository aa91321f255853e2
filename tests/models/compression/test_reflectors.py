"""Reflectors of given matrices: exact where they can be, nearest where they cannot."""

import itertools
import math

import pytest
import scipy.linalg
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from models.compression import convert_path, convert_weight
from models.compression.orthogonal.reflectors import (
    product_of,
    reduced_staircase,
    reflector_of,
    staircase_of,
    sweep_,
)
from models.compression.orthogonal.rotation_planes import planes_of
from models.parametrizations import Householder, HouseholderSvd
from tests.models import reference
from tests.models.compression.targets import (
    SPECTRA,
    dense,
    gaussian,
    orthogonal,
    relative_error,
    tail,
    with_values,
)


def rotation_of(angles: list[float], size: int, *, seed: int = 0) -> Tensor:
    """Block rotations by given angles, and lines that are kept, in a random basis."""
    blocks = torch.eye(size, dtype=torch.float64)
    for place, angle in enumerate(angles):
        a, b = 2 * place, 2 * place + 1
        blocks[a, a] = blocks[b, b] = math.cos(angle)
        blocks[b, a], blocks[a, b] = math.sin(angle), -math.sin(angle)
    basis = orthogonal(size, seed=seed)
    return basis @ blocks @ basis.mT


def schur_bound(matrix: Tensor, count: int) -> float:
    """`|Q - P|^2 >= 2 sum of the n - m smallest 1 - cos`, from scipy's real Schur form."""
    triangle = scipy.linalg.schur(matrix.numpy(), output="real")[0]
    cosines = sorted(torch.linalg.eigvals(torch.from_numpy(triangle)).real.tolist())
    return 2 * sum(1 - cosine for cosine in cosines[count:])


@settings(deadline=None)
@given(st.lists(st.floats(-1e3, 1e3), min_size=1, max_size=6))
def test_a_reflector_takes_a_vector_to_the_positive_axis(numbers: list[float]) -> None:
    x = torch.tensor(numbers, dtype=torch.float64)
    u = reflector_of(x.unsqueeze(0))[0]
    reflected = reference.reflector(u) @ x
    expected = torch.zeros_like(x)
    # Squares of the smallest numbers would vanish.
    length = math.hypot(*numbers)
    expected[0] = length
    torch.testing.assert_close(reflected, expected, rtol=0, atol=3e-9 * length + 5e-324)


@pytest.mark.parametrize("size", [1, 2, 3, 7, 16])
@pytest.mark.parametrize("determinant", [1, -1])
def test_as_many_reflectors_as_coordinates_are_any_orthogonal_matrix(
    size: int, determinant: int
) -> None:
    q = orthogonal(size, seed=size, determinant=determinant)
    linear = convert_weight(q, Householder(m=size))
    assert relative_error(q, linear) < 1e-12
    assert round(float(torch.linalg.det(dense(linear)))) == determinant


@pytest.mark.parametrize("size", [2, 5, 12])
@pytest.mark.parametrize("count", [1, 2, 4])
def test_a_product_of_staircase_reflectors_gives_them_back(size: int, count: int) -> None:
    count = min(count, size - 1)
    rows = torch.triu(gaussian(count, size, seed=3))
    product = reference.reflector_product(rows)
    found = staircase_of(product.unsqueeze(0), count)[0]
    torch.testing.assert_close(reference.reflector_product(found), product, rtol=0, atol=1e-12)
    unit = rows / rows.norm(dim=1, keepdim=True)
    torch.testing.assert_close((found * unit).sum(1).abs(), torch.ones(count).double())


@pytest.mark.parametrize("vectors", [1, 2, 3])
def test_few_reflections_are_a_staircase_wherever_they_point(vectors: int) -> None:
    for chosen in itertools.combinations(range(4), vectors):
        axes = torch.eye(4, dtype=torch.float64)[list(chosen)]
        found = reduced_staircase(axes, vectors)
        assert not found.tril(-1).any()
        expected = reference.reflector_product(axes)
        torch.testing.assert_close(product_of(found.unsqueeze(0))[0], expected)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.sampled_from([0.0, 1e-4, 0.7, 0.7 + 1e-9, math.pi / 2, 2.5, math.pi]),
        min_size=1,
        max_size=4,
    ),
    st.integers(0, 2),
    st.integers(0, 1000),
)
def test_planes_make_up_the_matrix_whatever_angles_are_repeated(
    angles: list[float], lines: int, seed: int
) -> None:
    q = rotation_of(angles, 2 * len(angles) + lines, seed=seed)
    planes = planes_of(q)
    basis = torch.cat([plane.basis for plane in planes], -1)
    torch.testing.assert_close(basis.mT @ basis, torch.eye(len(q)).double(), rtol=0, atol=1e-10)
    vectors = [vector for plane in planes for vector in plane.vectors()]
    stack = torch.stack(vectors) if vectors else torch.zeros(0, len(q)).double()
    torch.testing.assert_close(product_of(stack.unsqueeze(0))[0], q, rtol=0, atol=1e-8)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("size", [6, 9, 12])
def test_no_fewer_reflectors_come_nearer_than_schur_allows_and_whole_planes_meet_it(
    size: int, seed: int
) -> None:
    q = orthogonal(size, seed=seed, determinant=1)
    turned = sum(plane.reflectors for plane in planes_of(q))
    for count in range(1, size + 1):
        linear = convert_weight(q, Householder(m=count))
        error = float((dense(linear) - q).square().sum())
        bound = schur_bound(q, count)
        assert error >= bound - 1e-9
        if count % 2 == 0 and count <= turned:
            assert error == pytest.approx(bound, abs=1e-9)


def test_two_reflectors_beat_every_pair_on_a_fine_grid() -> None:
    q = rotation_of([2.2, 1.0], 4, seed=5)
    best = relative_error(q, convert_weight(q, Householder(m=2)))
    generator = torch.Generator().manual_seed(0)
    pairs = torch.randn(20_000, 2, 4, generator=generator, dtype=torch.float64)
    errors = (product_of(pairs) - q).square().sum((1, 2)).sqrt() / q.norm()
    assert best <= float(errors.min()) + 1e-12


@pytest.mark.parametrize("name", SPECTRA)
def test_more_reflectors_are_never_worse(name: str) -> None:
    weight = with_values(SPECTRA[name], seed=11)
    errors = [
        relative_error(weight, convert_weight(weight, Householder(m=m))) for m in range(1, 13)
    ]
    assert all(b <= a + 1e-12 for a, b in itertools.pairwise(errors))


@pytest.mark.parametrize("seed", range(3))
def test_a_sweep_never_loses_and_each_reflector_is_the_best_for_the_others(seed: int) -> None:
    x, rows = gaussian(1, 4, 4, seed=seed), torch.triu(gaussian(1, 2, 4, seed=seed + 9))
    rows /= rows.norm(dim=-1, keepdim=True)
    before = float((x @ product_of(rows)).diagonal(dim1=-2, dim2=-1).sum())
    sweep_(rows, x)
    after = float((x @ product_of(rows)).diagonal(dim1=-2, dim2=-1).sum())
    assert after >= before - 1e-12
    generator = torch.Generator().manual_seed(seed)
    tried = rows.repeat(5000, 1, 1)
    tried[:, 1, 1:] = torch.randn(5000, 3, generator=generator, dtype=torch.float64)
    others = (x @ product_of(tried)).diagonal(dim1=-2, dim2=-1).sum(-1)
    assert float(others.max()) <= after + 1e-12


@pytest.mark.parametrize("shape", [(6, 6), (1, 7), (7, 1), (4, 9), (9, 4), (5, 6)])
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_all_reflectors_and_free_values_are_any_matrix(shape: tuple[int, int], sign: float) -> None:
    weight = gaussian(*shape, seed=1)
    weight[0] *= sign
    shorter = min(shape)
    linear = convert_weight(weight, HouseholderSvd(m1=shorter, m2=shorter, bound="free"))
    assert relative_error(weight, linear) < 1e-12


@pytest.mark.parametrize(
    "name",
    [
        # These two converge in many small steps.
        pytest.param(name, marks=pytest.mark.slow if name in ("near one", "decaying") else [])
        for name in SPECTRA
    ],
)
def test_m_reflectors_a_side_are_at_least_as_near_as_rank_m_and_nearer_with_each(name: str) -> None:
    weight = with_values(SPECTRA[name], seed=2)
    counts = [HouseholderSvd(m1=m, m2=m, bound="free") for m in range(1, 13)]
    errors = [relative_error(weight, linear) for linear in convert_path(weight, counts)]
    for m, error in enumerate(errors, start=1):
        assert error <= tail(weight, m) + 1e-12
        alone = convert_weight(weight, counts[m - 1])
        assert relative_error(weight, alone) <= tail(weight, m) + 1e-12
    assert all(b <= a + 1e-12 for a, b in itertools.pairwise(errors))
    assert errors[-1] < 1e-12


def test_values_outside_the_radius_go_to_its_end_and_no_feasible_matrix_is_nearer() -> None:
    weight = with_values(torch.tensor([1.6, 1.2, 1.0, 0.3], dtype=torch.float64), seed=4)
    spec = HouseholderSvd(m1=4, m2=4, r=0.25, bound="clip")
    linear = convert_weight(weight, spec)
    found = dense(linear)
    values = torch.linalg.svdvals(found)
    torch.testing.assert_close(values, torch.tensor([1.25, 1.2, 1.0, 0.75]).double())
    best = float((found - weight).norm())
    generator = torch.Generator().manual_seed(0)
    for seed in range(300):
        s = 0.75 + 0.5 * torch.rand(4, generator=generator, dtype=torch.float64)
        left, _, right = torch.linalg.svd(found + 0.3 * gaussian(4, 4, seed=seed))
        assert float((left @ torch.diag(s) @ right - weight).norm()) >= best - 1e-12
    sigmoid = convert_weight(weight, spec.model_copy(update={"bound": "sigmoid"}))
    assert float((dense(sigmoid) - weight).norm()) == pytest.approx(best, abs=1e-3)
    assert float((torch.linalg.svdvals(dense(sigmoid)) - 1).abs().max()) < 0.25


def test_reflectors_to_spare_can_learn() -> None:
    linear = convert_weight(torch.eye(8), Householder(m=5))
    assert relative_error(torch.eye(8).double(), linear) < 1e-12
    (linear.dense_weight() * gaussian(8, 8)).sum().backward()
    entries = linear.get_parameter("u.entries")
    assert entries.grad is not None
    assert int((entries.grad != 0).sum()) > 8 + 7
