import pytest
import torch
from pydantic import ValidationError
from torch import nn

from models.forms import DenseForm, LowRankForm
from models.model import after_step, parameter_groups, penalty, spectral_margin
from models.parametrizations import HouseholderSvd
from models.parametrizations.householder_svd import Bound, HouseholderSvdLinear
from models.spec import Slot
from tests.models.reference import (
    reflected,
    reflection_gradients,
    reflector_product,
    staircase,
)

BOUNDS: tuple[Bound, ...] = ("sigmoid", "clip", "free")


def linear_of(spec: HouseholderSvd, out_features: int, in_features: int) -> HouseholderSvdLinear:
    generator = torch.Generator().manual_seed(0)
    slot = Slot(out_features=out_features, in_features=in_features, gates=2)
    linear = spec.build(slot, generator=generator).double()
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
    assert margin == pytest.approx((found - sigma_star).abs().max().item(), abs=1e-12)


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
    few, many = HouseholderSvd(m1=16, m2=16, r=0.3), HouseholderSvd(m1=16, m2=17, r=0.3)
    thin, wide = linear_of(few, 96, 96), linear_of(many, 96, 96)
    assert isinstance(thin.form(), LowRankForm)
    assert isinstance(wide.form(), DenseForm)
    assert isinstance(linear_of(few, 95, 95).form(), DenseForm)
    assert thin.multiply_adds() == 2 * (2 * 96 * 32 + 96)
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


def packed(rows: torch.Tensor) -> torch.Tensor:
    return torch.cat([row[place:] for place, row in enumerate(rows)])


@pytest.mark.parametrize(
    ("out_features", "in_features", "m1", "m2"),
    [(6, 6, 4, 3), (3, 6, 2, 3), (6, 3, 3, 2), (100, 100, 7, 9)],
)
def test_gradients_are_the_papers_closed_form(
    out_features: int, in_features: int, m1: int, m2: int
) -> None:
    linear = linear_of(HouseholderSvd(m1=m1, m2=m2, r=0.4), out_features, in_features)
    generator = torch.Generator().manual_seed(1)
    h = torch.randn(in_features, generator=generator, dtype=torch.float64, requires_grad=True)
    g = torch.randn(out_features, generator=generator, dtype=torch.float64)
    with torch.no_grad():
        linear.p.copy_(torch.randn(linear.p.shape, generator=generator))
    linear.apply_weight(h)[out_features:].backward(g)

    p, shorter = linear.p[1].detach(), min(out_features, in_features)
    s = 1 + 0.8 * (p.sigmoid() - 0.5)
    u = staircase(linear.u.entries[1].detach(), out_features).flip(0)
    v = staircase(linear.v.entries[1].detach(), in_features)
    last = torch.ones(shorter, dtype=torch.float64)
    for side in (linear.u, linear.v):
        if side.sign is not None:
            last[-1] *= side.sign[1]
    # The reader's reflectors act in the order of storage, the writer's in the opposite one.
    v_states = reflected(v, h.detach())
    middle = torch.zeros(out_features, dtype=torch.float64)
    middle[:shorter] = last * s * v_states[-1][:shorter]
    u_rows, above = reflection_gradients(u, reflected(u, middle), g)
    by_s = last * above[:shorter] * v_states[-1][:shorter]
    below = torch.zeros(in_features, dtype=torch.float64)
    below[:shorter] = last * s * above[:shorter]
    v_rows, by_h = reflection_gradients(v, v_states, below)

    slope = 0.8 * p.sigmoid() * (1 - p.sigmoid())
    for found, expected in [
        (linear.u.entries.grad, packed(u_rows.flip(0))),
        (linear.v.entries.grad, packed(v_rows)),
        (linear.p.grad, by_s * slope),
    ]:
        assert found is not None
        torch.testing.assert_close(found[1], expected, atol=1e-12, rtol=0)
        assert not found[0].any()
    torch.testing.assert_close(h.grad, by_h, atol=1e-12, rtol=0)


@pytest.mark.parametrize("bound", BOUNDS)
@pytest.mark.parametrize("slot", [(6, 6), (3, 6), (6, 3)], ids=str)
def test_each_bound_keeps_its_promise_while_training(bound: Bound, slot: tuple[int, int]) -> None:
    linear = linear_of(HouseholderSvd(m1=2, m2=3, r=0.05, bound=bound), *slot)
    assert torch.equal(linear.singular_values(), torch.ones(2, 3 if 3 in slot else 6).double())
    generator = torch.Generator().manual_seed(3)
    target = 3 * torch.randn(2, *slot, generator=generator, dtype=torch.float64)
    optimizer = torch.optim.Adam(parameter_groups(linear, 0.02))
    for _ in range(20):
        optimizer.zero_grad()
        (linear.dense_weight() - target).square().sum().backward()
        optimizer.step()
        after_step(linear)
    found = torch.linalg.svdvals(linear.dense_weight().detach())
    claimed = linear.singular_values().detach().sort(descending=True).values
    torch.testing.assert_close(found, claimed, atol=1e-12, rtol=0)
    distance = (claimed - 1).abs().max().item()
    if bound == "sigmoid":
        assert 0.02 < distance < 0.05
    elif bound == "clip":
        assert distance == pytest.approx(0.05, abs=1e-12)
    else:
        assert distance > 0.06


def test_clipping_brings_back_what_has_left_the_interval_and_leaves_the_rest() -> None:
    linear = linear_of(HouseholderSvd(m1=2, m2=2, r=0.25, sigma_star=0.5, bound="clip"), 4, 4)
    with torch.no_grad():
        linear.p.copy_(torch.tensor([-3.0, 0.3, 0.74, 2.0]))
    after_step(linear)
    assert linear.singular_values()[0].tolist() == pytest.approx([0.25, 0.3, 0.74, 0.75])


@pytest.mark.parametrize("bound", BOUNDS)
def test_penalty_is_the_sum_of_squared_distances_of_all_copies(bound: Bound) -> None:
    spec = HouseholderSvd(m1=2, m2=2, r=0.4, sigma_star=0.8, bound=bound, penalty=0.3)
    linear = linear_of(spec, 4, 4)
    with torch.no_grad():
        linear.p.add_(torch.linspace(-0.2, 0.2, 8).view(2, 4))
    found = penalty(nn.ModuleList([linear]))
    assert found is not None
    weights = torch.linalg.svdvals(linear.dense_weight().detach())
    expected = 0.15 * (weights - 0.8).square().sum().item()
    assert expected > 1e-4
    assert found.item() == pytest.approx(expected)
    found.backward()
    assert linear.p.grad is not None
    assert torch.equal(linear.p.grad > 0, linear.singular_values() > 0.8)
    assert linear.u.entries.grad is None


def test_without_a_penalty_there_is_none() -> None:
    assert linear_of(HouseholderSvd(m1=2, m2=2), 4, 4).penalty() is None
    with pytest.raises(ValidationError):
        HouseholderSvd(m1=2, m2=2, penalty=-1)


@pytest.mark.parametrize(
    ("bound", "rate", "factor"),
    [
        ("sigmoid", "matched", 10),
        ("sigmoid", "plain", 1),
        ("clip", "matched", 1),
        ("clip", "plain", 1),
        ("free", "matched", 1),
    ],
)
def test_learning_rate_of_the_singular_values(bound: str, rate: str, factor: float) -> None:
    document = {"m1": 2, "m2": 2, "r": 0.05, "bound": bound, "sigma_learning_rate": rate}
    linear = linear_of(HouseholderSvd.model_validate(document), 4, 4)
    rates = {
        id(parameter): group["lr"]
        for group in parameter_groups(linear, 0.01)
        for parameter in group["params"]
    }
    assert rates.pop(id(linear.p)) == pytest.approx(0.01 * factor)
    assert set(rates.values()) == {0.01}


def block_gradients(first: HouseholderSvdLinear, second: HouseholderSvdLinear) -> list[float]:
    """The largest gradient of each parameter of `x + f(W_b f(W_a x))`, for two layers."""
    generator = torch.Generator().manual_seed(4)
    x, target = torch.randn(2, 8, 6, generator=generator, dtype=torch.float64)
    leaky = nn.functional.leaky_relu
    inner = first.apply_weight(x)[:, :6]
    branch = leaky(second.apply_weight(leaky(inner))[:, :6])
    (x + branch - target).square().mean().backward()
    gradients = [p.grad for linear in (first, second) for p in linear.parameters()]
    return [0.0 if found is None else found.abs().max().item() for found in gradients]


@pytest.mark.parametrize("bound", BOUNDS)
def test_two_layers_with_singular_values_around_zero_are_not_born_on_a_saddle(
    bound: Bound,
) -> None:
    spec = HouseholderSvd(m1=3, m2=4, r=0.1, sigma_star=0.0, bound=bound)
    layers = linear_of(spec, 6, 6), linear_of(spec, 6, 6)
    for linear in layers:
        values = linear.singular_values().detach()
        assert 0.02 < values.abs().mean() < values.abs().max() < 0.1
    assert min(block_gradients(*layers)) > 1e-6

    dead = linear_of(spec, 6, 6), linear_of(spec, 6, 6)
    with torch.no_grad():
        for linear in dead:
            linear.p.zero_()
    assert set(block_gradients(*dead)) == {0.0}


@pytest.mark.parametrize("slot", [(6, 6, 2), (3, 6, 2), (100, 100, 7)], ids=str)
def test_half_precision_factors_are_made_in_single_precision(slot: tuple[int, int, int]) -> None:
    out_features, in_features, m = slot
    spec = HouseholderSvd(m1=m, m2=m, r=0.3)
    half, exact = (linear_of(spec, out_features, in_features) for _ in range(2))
    half.bfloat16()
    with torch.no_grad():
        for one, other in zip(exact.parameters(), half.parameters(), strict=True):
            one.copy_(other)
    weight = half.dense_weight()
    assert weight.dtype == torch.bfloat16
    torch.testing.assert_close(weight.double(), exact.dense_weight(), atol=0.02, rtol=0)
    weight.float().square().sum().backward()
    after_step(half)
    assert {parameter.dtype for parameter in half.parameters()} == {torch.bfloat16}
