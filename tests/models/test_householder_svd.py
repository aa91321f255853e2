import pytest
import torch

from models.model import after_step, parameter_groups, spectral_margin
from models.ops.factors import DenseFactors, LowRankFactors
from models.parametrizations import HouseholderSvd
from models.parametrizations.householder_svd import HouseholderSvdLinear
from tests.models.reference import reflector_product, staircase


def linear_of(spec: HouseholderSvd, out_features: int, in_features: int) -> HouseholderSvdLinear:
    generator = torch.Generator().manual_seed(0)
    linear = spec.build(in_features, out_features, copies=2, generator=generator).double()
    assert isinstance(linear, HouseholderSvdLinear)
    return linear


@pytest.mark.parametrize(
    ("out_features", "in_features", "m1", "m2"),
    [
        (5, 5, 2, 3),
        (5, 5, 5, 5),
        (5, 5, 4, 5),
        (1, 1, 1, 1),
        (3, 6, 3, 2),
        (6, 3, 2, 3),
        (1, 4, 1, 1),
    ],
)
def test_weight_is_the_product_of_sequential_reflectors_and_signs(
    out_features: int, in_features: int, m1: int, m2: int
) -> None:
    linear = linear_of(HouseholderSvd(m1=m1, m2=m2, r=0.4), out_features, in_features)
    with torch.no_grad():
        linear.p.copy_(torch.randn_like(linear.p))
        for side in (linear.u, linear.v):
            if side.sign is not None:
                side.sign.copy_(torch.tensor([-1.0, 1.0]))
    for copy, weight in enumerate(linear.dense_weight()):
        sides: list[torch.Tensor] = []
        for side, size in ((linear.u, out_features), (linear.v, in_features)):
            product = reflector_product(staircase(side.entries[copy].detach(), size))
            if side.sign is not None:
                last = torch.ones(size, dtype=torch.float64)
                last[-1] = side.sign[copy]
                product = product @ torch.diag(last)
            sides.append(product)
        middle = torch.zeros(out_features, in_features, dtype=torch.float64)
        sigma = 1 + 2 * 0.4 * (torch.sigmoid(linear.p[copy].detach()) - 0.5)
        middle.diagonal().copy_(sigma)
        torch.testing.assert_close(weight, sides[0] @ middle @ sides[1].T, atol=1e-13, rtol=0)


@pytest.mark.parametrize(("r", "sigma_star"), [(0.01, 1.0), (0.5, 1.0), (0.2, 0.7)])
def test_singular_values_stay_in_the_interval_while_training(r: float, sigma_star: float) -> None:
    linear = linear_of(HouseholderSvd(m1=6, m2=3, r=r, sigma_star=sigma_star), 8, 8)
    target = 3 * torch.randn(2, 8, 8, dtype=torch.float64)
    optimizer = torch.optim.Adam(parameter_groups(linear, 0.003))
    determinant = torch.linalg.det(linear.dense_weight()).sign()
    for _ in range(20):
        optimizer.zero_grad()
        (linear.dense_weight() - target).square().sum().backward()
        optimizer.step()
        after_step(linear)
    found = torch.linalg.svdvals(linear.dense_weight().detach())
    assert sigma_star - r < found.min() < found.max() < sigma_star + r
    assert (found - sigma_star).abs().max() > 0.01 * r
    assert torch.equal(torch.linalg.det(linear.dense_weight()).sign(), determinant)
    margin = spectral_margin(linear)
    assert margin == pytest.approx((found - 1).abs().max().item(), abs=1e-12)


def test_reflectors_keep_length_one_while_training() -> None:
    linear = linear_of(HouseholderSvd(m1=6, m2=3), 8, 8)
    optimizer = torch.optim.SGD(linear.parameters(), lr=10.0)
    linear.dense_weight().square().sub(1).square().sum().backward()
    optimizer.step()
    assert linear.u.rows().norm(dim=-1).max() > 1.01
    after_step(linear)
    torch.testing.assert_close(linear.u.rows().norm(dim=-1), torch.ones(2, 6, dtype=torch.float64))


def test_sigma_learns_at_the_learning_rate_over_twice_the_radius() -> None:
    linear = linear_of(HouseholderSvd(m1=2, m2=2, r=0.05), 4, 4)
    plain, sigma = parameter_groups(linear, 0.01)
    assert plain["lr"] == 0.01
    assert sigma["lr"] == pytest.approx(0.01 / 0.1)
    assert sigma["params"] == [linear.p]


def test_the_factored_form_is_taken_by_the_rule_and_computes_the_same() -> None:
    few, many = HouseholderSvd(m1=16, m2=22, r=0.3), HouseholderSvd(m1=16, m2=23, r=0.3)
    thin, wide = linear_of(few, 96, 96), linear_of(many, 96, 96)
    assert isinstance(thin.factors(), LowRankFactors)
    assert isinstance(wide.factors(), DenseFactors)
    assert isinstance(linear_of(few, 95, 95).factors(), DenseFactors)
    assert thin.multiply_adds() == 2 * (2 * 96 * 38 + 96)
    assert wide.multiply_adds() == 2 * 96**2
    for side, size in ((thin.u, 96), (thin.v, 96)):
        assert side.entries.shape == (2, sum(size - j for j in range(side.count)))
    expected = [
        reflector_product(staircase(u, 96)) @ reflector_product(staircase(v, 96)).T
        for u, v in zip(thin.u.entries.detach(), thin.v.entries.detach(), strict=True)
    ]
    torch.testing.assert_close(thin.dense_weight(), torch.stack(expected), atol=1e-12, rtol=0)


def test_the_one_by_one_reflector_is_a_sign_that_is_stored_and_not_trained() -> None:
    linear = linear_of(HouseholderSvd(m1=4, m2=3), 4, 4)
    assert linear.u.sign is not None
    assert linear.v.sign is None
    assert "u.sign" in linear.state_dict()
    assert linear.u.sign.tolist() == [-1.0, -1.0]
    assert not linear.u.sign.requires_grad
