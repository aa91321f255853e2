"""Packed rotations of given matrices: sweeps only gain, and all stages reach every rotation."""

import itertools
import math

import pytest
import torch

from models.compression import convert_path, convert_weight
from models.compression.orthogonal.rotations import Stages
from models.errors import ConversionError
from models.math.rotations import stage_count
from models.parametrizations import FactorizedSvd, PackedRotations, RotationSvd
from tests.models import reference
from tests.models.compression.targets import (
    SPECTRA,
    dense,
    gaussian,
    orthogonal,
    relative_error,
    with_values,
)


@pytest.mark.parametrize("size", [2, 3, 5, 8])
def test_stages_multiply_as_the_schedule_says(size: int) -> None:
    count = stage_count(size)
    angles = gaussian(1, count, size // 2)
    expected = reference.rotation_product(size, reference.circle_schedule(size), angles[0])
    torch.testing.assert_close(Stages(size, count).product(angles)[0], expected)


@pytest.mark.parametrize(("size", "count"), [(2, 1), (3, 2), (4, 3), (7, 4)])
def test_a_sweep_only_gains_and_leaves_the_last_stage_at_its_best(size: int, count: int) -> None:
    stages, x = Stages(size, count), gaussian(1, size, size, seed=1)
    angles = gaussian(1, count, size // 2, seed=2)

    def gain(theta: torch.Tensor) -> torch.Tensor:
        return (x @ stages.product(theta)).diagonal(dim1=-2, dim2=-1).sum(-1)

    before = float(gain(angles))
    for _ in range(5):
        stages.sweep_(angles, x, stages.product(angles))
        assert float(gain(angles)) >= before - 1e-12
        before = float(gain(angles))
    for pair in range(size // 2):
        tried = angles.repeat(721, 1, 1)
        tried[:, -1, pair] = torch.linspace(0, 2 * math.pi, 721).double()
        assert float(gain(tried).max()) <= before + 1e-12


@pytest.mark.parametrize("size", [2, 3, 4, 6])
def test_all_stages_reach_rotations_and_keep_their_distance_from_reflections(size: int) -> None:
    spec = PackedRotations(count=stage_count(size))
    rotation = orthogonal(size, seed=size, determinant=1)
    assert relative_error(rotation, convert_weight(rotation, spec)) < 1e-4
    reflection = orthogonal(size, seed=size, determinant=-1)
    distance = float((dense(convert_weight(reflection, spec)) - reflection).norm())
    assert distance == pytest.approx(2, abs=1e-3)


def test_two_coordinates_turn_by_the_angle_of_the_closed_form() -> None:
    weight = gaussian(2, 2, seed=4)
    linear = convert_weight(weight, PackedRotations(count=1))
    angle = math.atan2(weight[0, 1] - weight[1, 0], weight[0, 0] + weight[1, 1])
    found = float(linear.get_parameter("rotations.theta").detach())
    assert math.cos(found - angle) == pytest.approx(1, abs=1e-12)


@pytest.mark.parametrize("name", ["flat", "decaying"])
def test_more_stages_are_never_worse(name: str) -> None:
    weight = with_values(SPECTRA[name], seed=3)
    for counts in (
        [PackedRotations(count=k) for k in (1, 2, 4, 7, 11)],
        [RotationSvd(count_u=k, count_v=k) for k in (1, 2, 4, 7, 11)],
    ):
        errors = [relative_error(weight, linear) for linear in convert_path(weight, counts)]
        assert all(b <= a + 1e-12 for a, b in itertools.pairwise(errors))


def test_both_sides_with_signed_values_reach_a_negative_determinant() -> None:
    weight = gaussian(4, 4, seed=5)
    weight[0] *= -torch.linalg.det(weight).sign()
    assert float(torch.linalg.det(weight)) < 0
    linear = convert_weight(weight, RotationSvd(count_u=3, count_v=3))
    assert relative_error(weight, linear) < 1e-2


def test_an_earlier_solution_with_more_stages_is_refused() -> None:
    weight = gaussian(6, 6)
    earlier = convert_weight(weight, PackedRotations(count=3))
    with pytest.raises(ConversionError, match="has 3 stages; allowed are at most 2"):
        convert_weight(weight, PackedRotations(count=2), earlier=earlier)


@pytest.mark.parametrize("orthogonal_map", ["cayley", "exponential"])
@pytest.mark.parametrize("size", [1, 2, 5, 12])
def test_skew_matrices_make_both_sides_of_any_matrix_within_the_margin(
    size: int, orthogonal_map: str
) -> None:
    spec = FactorizedSvd.model_validate({"margin": 0.5, "orthogonal_map": orthogonal_map})
    values = torch.linspace(0.6, 1.4, size).double()
    weight = with_values(values, seed=size)
    weight[0] *= torch.linalg.det(weight).sign()
    assert relative_error(weight, convert_weight(weight, spec)) < 1e-9
    lost = -weight[:1] if size > 1 else -weight
    mirrored = torch.cat((lost, weight[1:]))
    found = dense(convert_weight(mirrored, spec))
    # The nearest of positive determinant: the smallest value changes its sign and is moved to 0.5.
    assert float((found - mirrored).norm()) == pytest.approx(float(values[0]) + 0.5, abs=1e-3)
