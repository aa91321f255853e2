import math

import numpy as np
import pytest
import scipy.linalg
import torch

from models.architectures import Urnn
from models.errors import SlotError
from models.math.orthogonal_maps import OrthogonalMapName
from models.model import ModelSpec, after_step, parameter_groups, spectral_margin
from models.parametrizations import UnitaryFull
from models.parametrizations.unitary_full import UnitaryFullLinear
from models.spec import Signature, Slot
from tests.models.reference import skew_hermitian

MAPS: tuple[OrthogonalMapName, ...] = ("cayley", "exponential")


def linear_of(
    orthogonal_map: OrthogonalMapName, size: int, *, num_matrices: int = 2
) -> UnitaryFullLinear:
    generator = torch.Generator().manual_seed(0)
    slot = Slot(out_features=size, in_features=size, gates=num_matrices, field="complex")
    linear = UnitaryFull(orthogonal_map=orthogonal_map).build(slot, generator=generator).double()
    assert isinstance(linear, UnitaryFullLinear)
    return linear


def expected_weight(linear: UnitaryFullLinear, copy: int, name: OrthogonalMapName) -> torch.Tensor:
    a = skew_hermitian(linear.a[copy].detach()).numpy()
    if name == "exponential":
        return torch.tensor(scipy.linalg.expm(a))
    identity = np.eye(len(a))
    return torch.tensor(scipy.linalg.inv(identity + a) @ (identity - a))


def complex_weight(linear: UnitaryFullLinear) -> torch.Tensor:
    """A + iB of the real form `[[A, -B], [B, A]]`, after a check that it is one."""
    size = linear.in_features // 2
    weight = linear.dense_weight().detach()
    a, b = weight[:, :size, :size], weight[:, size:, :size]
    torch.testing.assert_close(weight[:, size:, size:], a, atol=1e-12, rtol=0)
    torch.testing.assert_close(weight[:, :size, size:], -b, atol=1e-12, rtol=0)
    return torch.complex(a, b)


@pytest.mark.parametrize("orthogonal_map", MAPS)
@pytest.mark.parametrize("size", [1, 2, 5, 8])
def test_weight_is_the_image_of_a_skew_hermitian_matrix(
    orthogonal_map: OrthogonalMapName, size: int
) -> None:
    linear = linear_of(orthogonal_map, size)
    for copy, weight in enumerate(complex_weight(linear)):
        expected = expected_weight(linear, copy, orthogonal_map)
        torch.testing.assert_close(weight, expected, atol=1e-12, rtol=0)


@pytest.mark.parametrize("orthogonal_map", MAPS)
def test_it_acts_on_real_and_imaginary_parts_as_a_complex_product(
    orthogonal_map: OrthogonalMapName,
) -> None:
    linear = linear_of(orthogonal_map, 5, num_matrices=1)
    generator = torch.Generator().manual_seed(1)
    parts = torch.randn(3, 10, generator=generator, dtype=torch.float64)
    z = torch.complex(parts[:, :5], parts[:, 5:]) @ expected_weight(linear, 0, orthogonal_map).T
    expected = torch.cat((z.real, z.imag), dim=-1)
    torch.testing.assert_close(linear.apply_weight(parts), expected, atol=1e-12, rtol=0)


@pytest.mark.parametrize("orthogonal_map", MAPS)
def test_gradients_are_exact(orthogonal_map: OrthogonalMapName) -> None:
    linear = linear_of(orthogonal_map, 3)

    def weight(a: torch.Tensor) -> torch.Tensor:
        return torch.func.functional_call(Dense(linear), {"linear.a": a}, ())

    assert torch.autograd.gradcheck(weight, (linear.a,))


class Dense(torch.nn.Module):
    def __init__(self, linear: UnitaryFullLinear) -> None:
        super().__init__()
        self.linear = linear

    def forward(self) -> torch.Tensor:
        return self.linear.dense_weight()


@pytest.mark.parametrize("orthogonal_map", MAPS)
@pytest.mark.parametrize("size", [1, 2, 4])
def test_every_number_is_a_degree_of_freedom(orthogonal_map: OrthogonalMapName, size: int) -> None:
    linear = linear_of(orthogonal_map, size, num_matrices=1)
    rows = [
        torch.autograd.grad(entry, linear.a, retain_graph=True)[0].flatten()
        for entry in linear.dense_weight().flatten()
    ]
    rank = int(torch.linalg.matrix_rank(torch.stack(rows), rtol=1e-9))
    assert linear.degrees_of_freedom() == rank == size**2 == linear.a.numel()


@pytest.mark.parametrize("orthogonal_map", MAPS)
def test_training_moves_the_matrix_and_keeps_it_unitary(orthogonal_map: OrthogonalMapName) -> None:
    linear = linear_of(orthogonal_map, 6)
    start = complex_weight(linear)
    generator = torch.Generator().manual_seed(2)
    target = torch.randn(2, 12, 12, generator=generator, dtype=torch.float64)
    optimizer = torch.optim.Adam(parameter_groups(linear, 0.02))
    for _ in range(20):
        optimizer.zero_grad()
        (linear.dense_weight() - target).square().sum().backward()
        optimizer.step()
        after_step(linear)
    weight = complex_weight(linear)
    assert (weight - start).abs().max() > 0.05
    identity = torch.eye(6, dtype=weight.dtype).expand_as(weight)
    torch.testing.assert_close(weight @ weight.mH, identity, atol=1e-13, rtol=0)
    found = torch.linalg.svdvals(linear.dense_weight().detach())
    torch.testing.assert_close(found, linear.singular_values(), atol=1e-13, rtol=0)
    assert spectral_margin(linear) == 0


# See the same test of factorized_svd for the numbers.
@pytest.mark.parametrize(
    ("orthogonal_map", "mean", "largest"),
    [("cayley", math.sqrt(5) - 2, 2 * math.atan(2)), ("exponential", 0.1812, math.pi)],
)
def test_phases_start_well_spread(
    orthogonal_map: OrthogonalMapName, mean: float, largest: float
) -> None:
    linear = linear_of(orthogonal_map, 100, num_matrices=1)
    phases = torch.linalg.eigvals(complex_weight(linear)[0]).angle()
    assert phases.cos().mean().item() == pytest.approx(mean, abs=0.03)
    assert phases.sin().mean().item() == pytest.approx(0, abs=0.03)
    assert 0.9 * largest < phases.abs().max().item() < 1.05 * largest


def test_fc_urnn_of_the_pixel_mnist_table() -> None:
    """Wisdom et al. with n = 116: n^2 + 25 n + 10 = 16,366, printed as 16k."""
    spec = ModelSpec(
        architecture=Urnn(hidden_size=116),
        parametrization=UnitaryFull(),
        signature=Signature(input_size=1, sequence_length=784, output_size=10),
    )
    assert spec.parameter_count() == spec.paper_count() == 16_366 == 116**2 + 25 * 116 + 10
    assert sum(parameter.numel() for parameter in spec.build(seed=0).parameters()) == 16_366


@pytest.mark.parametrize("size", [1, 3])
def test_counts_of_all_copies(size: int) -> None:
    slot = Slot(out_features=size, in_features=size, gates=2, layers=3, field="complex")
    assert UnitaryFull().parameter_count(slot) == UnitaryFull().paper_count(slot) == 6 * size**2
    linear = linear_of("cayley", size)
    assert linear.a.numel() == linear.degrees_of_freedom() == 2 * size**2
    assert linear.multiply_adds() == linear.dense_weight().numel() == 2 * (2 * size) ** 2


def test_real_and_rectangular_slots_are_refused() -> None:
    with pytest.raises(SlotError, match="complex matrices only, not for a real 4 x 4 one"):
        UnitaryFull().check(Slot(out_features=4, in_features=4))
    with pytest.raises(SlotError, match="square matrices only, not for complex 3 x 4"):
        UnitaryFull().check(Slot(out_features=3, in_features=4, field="complex"))


@pytest.mark.parametrize("orthogonal_map", MAPS)
def test_half_precision_factors_are_made_in_single_precision(
    orthogonal_map: OrthogonalMapName,
) -> None:
    half, exact = linear_of(orthogonal_map, 20).bfloat16(), linear_of(orthogonal_map, 20)
    with torch.no_grad():
        exact.a.copy_(half.a)
    weight = half.dense_weight()
    assert weight.dtype == torch.bfloat16
    # One rounding, to 8 bits.
    torch.testing.assert_close(weight.double(), exact.dense_weight(), atol=1e-5, rtol=2**-8)
    weight.float().square().sum().backward()
