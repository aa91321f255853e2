import pytest
import torch

from models.architectures import Gru, Rnn
from models.errors import SlotError
from models.forms import DenseForm, LowRankForm
from models.model import ModelSpec, after_step, parameter_groups, spectral_margin
from models.parametrizations import Householder
from models.parametrizations.householder import HouseholderLinear
from models.spec import Signature, Slot
from tests.models.reference import (
    reflected,
    reflection_gradients,
    reflector_product,
    staircase,
)


def linear_of(m: int, size: int, *, num_matrices: int = 2) -> HouseholderLinear:
    generator = torch.Generator().manual_seed(0)
    slot = Slot(out_features=size, in_features=size, gates=num_matrices)
    linear = Householder(m=m).build(slot, generator=generator).double()
    assert isinstance(linear, HouseholderLinear)
    return linear


def expected_weight(linear: HouseholderLinear, copy: int) -> torch.Tensor:
    size = linear.in_features
    product = reflector_product(staircase(linear.u.entries[copy].detach(), size))
    last = torch.ones(size, dtype=torch.float64)
    if linear.u.sign is not None:
        last[-1] = linear.u.sign[copy]
    return product @ torch.diag(last)


@pytest.mark.parametrize(
    ("size", "m"), [(1, 1), (2, 1), (2, 2), (7, 1), (7, 4), (7, 7), (96, 32), (96, 33)]
)
def test_weight_is_the_product_of_sequential_reflectors(size: int, m: int) -> None:
    linear = linear_of(m, size)
    for copy, weight in enumerate(linear.dense_weight()):
        torch.testing.assert_close(weight, expected_weight(linear, copy), atol=1e-13, rtol=0)


@pytest.mark.parametrize(("size", "m"), [(5, 3), (9, 8), (120, 20)])
def test_weight_is_what_torch_makes_of_the_same_reflectors(size: int, m: int) -> None:
    linear = linear_of(m, size)
    rows = linear.u.rows().detach()
    # torch takes H = I - tau v v^T with leading entries 1.
    vectors = rows / rows.diagonal(dim1=-2, dim2=-1).unsqueeze(-1)
    tau = 2 / vectors.square().sum(-1)
    full = torch.eye(size, dtype=torch.float64).expand(2, size, size).clone()
    full[:, :, :m] = vectors.mT
    tau = torch.nn.functional.pad(tau, (0, size - m))
    expected = torch.linalg.householder_product(full, tau)
    torch.testing.assert_close(linear.dense_weight(), expected, atol=1e-11, rtol=0)


@pytest.mark.parametrize(("size", "m"), [(6, 1), (6, 4), (6, 6), (100, 12)])
def test_gradients_are_the_papers_closed_form(size: int, m: int) -> None:
    linear = linear_of(m, size, num_matrices=1)
    generator = torch.Generator().manual_seed(1)
    h, g = torch.randn(2, size, generator=generator, dtype=torch.float64)
    h.requires_grad_()
    linear.apply_weight(h).backward(g)
    rows = staircase(linear.u.entries[0].detach(), size)
    start = h.detach().clone()
    if linear.u.sign is not None:
        start[-1] *= linear.u.sign[0]
    # The last reflector of the product acts first.
    states = reflected(rows.flip(0), start)
    by_row, by_state = reflection_gradients(rows.flip(0), states, g)
    packed = torch.cat([row[place:] for place, row in enumerate(by_row.flip(0))])
    assert linear.u.entries.grad is not None
    torch.testing.assert_close(linear.u.entries.grad[0], packed, atol=1e-12, rtol=0)
    if linear.u.sign is not None:
        by_state[-1] *= linear.u.sign[0]
    torch.testing.assert_close(h.grad, by_state, atol=1e-12, rtol=0)


@pytest.mark.parametrize(("size", "m"), [(6, 1), (6, 4), (6, 6), (100, 12)])
def test_training_keeps_norms_the_determinant_and_the_fixed_directions(size: int, m: int) -> None:
    linear = linear_of(m, size)
    start = linear.dense_weight().detach()
    generator = torch.Generator().manual_seed(2)
    target = torch.randn(2, size, size, generator=generator, dtype=torch.float64)
    optimizer = torch.optim.Adam(parameter_groups(linear, 0.02))
    for _ in range(20):
        optimizer.zero_grad()
        (linear.dense_weight() - target).square().sum().backward()
        optimizer.step()
        after_step(linear)
    weight = linear.dense_weight().detach()
    identity = torch.eye(size, dtype=torch.float64)
    assert (weight - start).abs().max() > 0.01
    torch.testing.assert_close(weight @ weight.mT, identity.expand_as(weight), atol=1e-13, rtol=0)
    torch.testing.assert_close(
        torch.linalg.det(weight), torch.full((2,), (-1.0) ** m, dtype=torch.float64)
    )
    ranks = torch.linalg.matrix_rank(weight - identity, atol=1e-10)
    assert ranks.tolist() == [m, m]
    lengths = linear.u.rows().norm(dim=-1)
    torch.testing.assert_close(lengths, torch.ones_like(lengths))
    assert spectral_margin(linear) == 0


def test_the_factored_form_is_taken_by_the_rule() -> None:
    thin, wide = linear_of(32, 96), linear_of(33, 96)
    assert isinstance(thin.form(), LowRankForm)
    assert isinstance(wide.form(), DenseForm)
    assert thin.multiply_adds() == 2 * (2 * 96 * 32 + 96)
    assert wide.multiply_adds() == 2 * 96**2


@pytest.mark.parametrize("size", [5, 100])
def test_a_zero_reflector_is_the_identity_and_stays_so(size: int) -> None:
    linear = linear_of(3, size, num_matrices=1)
    with torch.no_grad():
        linear.u.entries[0, size : 2 * size - 1] = 0
    rows = linear.u.rows()[0].detach()
    assert not rows[1].any()
    weight = linear.dense_weight()
    torch.testing.assert_close(weight[0], reflector_product(rows[[0, 2]]), atol=1e-13, rtol=0)
    (weight * torch.arange(size, dtype=torch.float64)).sum().backward()
    gradient = linear.u.entries.grad
    assert gradient is not None
    assert not gradient[0, size : 2 * size - 1].any()
    assert gradient[0, :size].abs().max() > 1e-3
    torch.optim.SGD(linear.parameters(), lr=0.1).step()
    after_step(linear)
    assert torch.isfinite(linear.dense_weight()).all()
    assert not linear.u.rows()[0, 1].any()


def test_reflectors_start_in_random_directions() -> None:
    """E cos^4 is 3/8 for even directions of the plane, and 0.357 for those of a square's points."""
    first = linear_of(1, 2, num_matrices=100_000).u.entries.detach()[:, 0]
    assert first.pow(4).mean().item() == pytest.approx(3 / 8, abs=0.005)
    assert first.mean().item() == pytest.approx(0, abs=0.01)


def test_a_one_by_one_matrix_has_no_number_to_train() -> None:
    linear = linear_of(1, 1)
    assert sum(parameter.numel() for parameter in linear.parameters()) == 0
    assert linear.degrees_of_freedom() == 0
    assert linear.dense_weight().flatten().tolist() == [-1, -1]
    signature = Signature(input_size=1, sequence_length=3, output_size=1)
    spec = ModelSpec(
        architecture=Rnn(hidden_size=1), parametrization=Householder(m=1), signature=signature
    )
    network = spec.build(seed=0)
    optimizer = torch.optim.Adam(parameter_groups(network, 0.1))
    network(torch.ones(2, 3, 1)).sum().backward()
    optimizer.step()
    after_step(network)
    assert network(torch.ones(2, 3, 1)).isfinite().all()
    assert spec.parameter_count() == sum(p.numel() for p in network.parameters())
    assert spec.paper_count() == spec.parameter_count() + 1


@pytest.mark.parametrize(
    ("size", "m", "trained", "paper"), [(7, 1, 7, 7), (7, 6, 27, 27), (7, 7, 27, 28)]
)
def test_counts(size: int, m: int, trained: int, paper: int) -> None:
    slot = Slot(out_features=size, in_features=size, gates=2, layers=3)
    assert Householder(m=m).parameter_count(slot) == 6 * trained
    assert Householder(m=m).paper_count(slot) == 6 * paper
    linear = linear_of(m, size)
    assert linear.u.entries.numel() == 2 * trained
    assert linear.degrees_of_freedom() == 2 * (m * (2 * size - m - 1) // 2)


# Zhang, Lei, Dhillon: oRNN of table 2 (printed 11k), and of tables 3 and 4 (n = 32, m = 16).
@pytest.mark.parametrize(
    ("size", "m", "inputs", "outputs", "count"),
    [
        (256, 32, 1, 10, 11_034),
        (32, 16, 10, 50, 2426),
        (32, 16, 11, 38, 2062),
        (32, 16, 1, 3, 587),
    ],
)
def test_printed_counts_of_ornn(size: int, m: int, inputs: int, outputs: int, count: int) -> None:
    spec = ModelSpec(
        architecture=Rnn(hidden_size=size),
        parametrization=Householder(m=m),
        signature=Signature(input_size=inputs, sequence_length=8, output_size=outputs),
    )
    assert spec.parameter_count() == spec.paper_count() == count
    assert sum(parameter.numel() for parameter in spec.build(seed=0).parameters()) == count


def test_a_rectangle_and_too_many_reflectors_are_refused() -> None:
    with pytest.raises(SlotError, match="square matrices only, not for 3 x 4"):
        Householder(m=1).check(Slot(out_features=3, in_features=4))
    with pytest.raises(SlotError, match="m = 5 does not fit a 4 x 4 matrix; allowed is 1 to 4"):
        Householder(m=5).check(Slot(out_features=4, in_features=4))


@pytest.mark.parametrize(("size", "m"), [(6, 6), (6, 2), (100, 12)])
def test_half_precision_factors_are_made_in_single_precision(size: int, m: int) -> None:
    half = linear_of(m, size).bfloat16()
    weight = half.dense_weight()
    assert weight.dtype == torch.bfloat16
    # What is stored is exact in single precision: only the result is rounded, to 8 bits, and
    # through two factors once more.
    exact = linear_of(m, size)
    with torch.no_grad():
        exact.u.entries.copy_(half.u.entries)
    torch.testing.assert_close(weight.double(), exact.dense_weight(), atol=0.02, rtol=0)
    weight.float().square().sum().backward()
    after_step(half)
    assert half.u.entries.dtype == torch.bfloat16


def test_every_gate_and_layer_has_its_own_reflectors() -> None:
    signature = Signature(input_size=2, sequence_length=3, output_size=2)
    spec = ModelSpec(
        architecture=Gru(hidden_size=6, layers=2),
        parametrization=Householder(m=3),
        signature=signature,
    )
    entries = spec.build(seed=0).state_dict()["recurrent.u.entries"]
    assert entries.shape == (6, 15)
    assert len(entries.unique(dim=0)) == 6
