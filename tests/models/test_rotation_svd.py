import pytest
import torch

from models.architectures import Gru
from models.errors import SlotError
from models.forms import DenseForm
from models.model import ModelSpec, penalty
from models.parametrizations import RotationSvd
from models.parametrizations.rotation_svd import RotationSvdLinear
from models.spec import Signature, Slot
from tests.models.reference import circle_schedule, rotation_product
from tests.models.structure import jacobian_rank, trained


def linear_of(spec: RotationSvd, size: int, gates: int = 2) -> RotationSvdLinear:
    slot = Slot(out_features=size, in_features=size, gates=gates)
    linear = spec.build(slot, generator=torch.Generator().manual_seed(1))
    assert isinstance(linear, RotationSvdLinear)
    stored = sum(parameter.numel() for parameter in linear.parameters())
    assert stored == spec.parameter_count(slot)
    assert stored == gates * ((spec.count_u + spec.count_v) * (size // 2) + size)
    return linear


@pytest.mark.parametrize(
    ("size", "count_u", "count_v"), [(2, 1, 1), (3, 3, 1), (6, 2, 5), (7, 7, 7), (9, 1, 4)]
)
def test_weight_is_the_product_of_single_rotations_around_a_diagonal(
    size: int, count_u: int, count_v: int
) -> None:
    linear = linear_of(RotationSvd(count_u=count_u, count_v=count_v), size).double()
    s = torch.linspace(-1.5, 2, 2 * size, dtype=torch.float64).view(2, size)
    with torch.no_grad():
        linear.s.copy_(s)
    stages = circle_schedule(size)
    for copy, weight in enumerate(linear.dense_weight()):
        u = rotation_product(size, stages[:count_u], linear.u.theta[copy])
        v = rotation_product(size, stages[:count_v], linear.v.theta[copy])
        torch.testing.assert_close(weight, u @ torch.diag(s[copy]) @ v.T, atol=1e-13, rtol=0)


def test_start_is_a_rotation_or_the_identity() -> None:
    weight = linear_of(RotationSvd(count_u=3, count_v=2), 6).double().dense_weight()
    identity = torch.eye(6, dtype=torch.float64).expand(2, 6, 6)
    torch.testing.assert_close(weight @ weight.mT, identity, atol=1e-13, rtol=0)
    assert (weight - identity).abs().amax((1, 2)).min() > 0.1
    still = linear_of(RotationSvd(count_u=3, count_v=2, initialisation="identity"), 6)
    assert torch.equal(still.dense_weight(), identity.float())


@pytest.mark.parametrize(("size", "count_u", "count_v"), [(2, 1, 1), (5, 5, 2), (6, 1, 5)])
@pytest.mark.parametrize("initialisation", ["uniform", "identity"])
def test_s_are_the_singular_values_whatever_is_learned(
    size: int, count_u: int, count_v: int, initialisation: str
) -> None:
    spec = RotationSvd.model_validate(
        {"count_u": count_u, "count_v": count_v, "initialisation": initialisation}
    )
    linear = trained(linear_of(spec, size))
    weight = linear.dense_weight()
    claimed = linear.singular_values()
    assert claimed is not None
    assert (claimed - 1).abs().max() > 0.1
    found = torch.linalg.svdvals(weight)
    torch.testing.assert_close(found, claimed.abs().sort(descending=True).values)
    torch.testing.assert_close(torch.linalg.det(weight), claimed.prod(-1))


@pytest.mark.parametrize("size", [2, 3, 4, 5, 6, 7])
def test_degrees_of_freedom_are_the_rank_of_the_jacobian(size: int) -> None:
    most = size - 1 if size % 2 == 0 else size
    for count_u in range(1, most + 1):
        for count_v in {1, (count_u + 1) // 2, most}:
            linear = linear_of(RotationSvd(count_u=count_u, count_v=count_v), size, gates=1)
            assert linear.degrees_of_freedom() == jacobian_rank(linear)
    assert linear_of(RotationSvd(count_u=most, count_v=most), size, 3).degrees_of_freedom() == (
        3 * size**2
    )


def test_a_reflection_is_reached_by_a_negative_singular_value() -> None:
    linear = linear_of(RotationSvd(count_u=1, count_v=1), 4, gates=1)
    target = torch.diag(torch.tensor([1.0, 1.0, 1.0, -1.0]))
    with torch.no_grad():
        linear.u.theta.zero_()
        linear.v.theta.zero_()
        linear.s[0, 3] = -1
    assert torch.equal(linear.dense_weight()[0], target)


@pytest.mark.parametrize(("reduction", "share"), [("sum", 1.0), ("mean", 0.2)])
def test_penalty_pulls_singular_values_towards_one(reduction: str, share: float) -> None:
    spec = RotationSvd.model_validate(
        {"count_u": 2, "count_v": 1, "penalty": 0.4, "reduction": reduction}
    )
    linear = linear_of(spec, 5).double()
    assert linear.penalty().item() == 0
    s = torch.tensor([[1.0, 0.5, -1.0, 3.0, 1.0], [2.0, 1.0, 1.0, 1.0, 1.0]], dtype=torch.float64)
    with torch.no_grad():
        linear.s.copy_(s)
    # Squares of the first matrix: 0.25 + 4 + 4; of the second: 1.
    assert linear.penalty().item() == pytest.approx(0.5 * 0.4 * share * 9.25)
    linear.penalty().backward()
    assert linear.s.grad is not None
    torch.testing.assert_close(linear.s.grad, 0.4 * share * (s - 1))


def test_penalties_of_all_layers_and_gates_are_added_up() -> None:
    spec = ModelSpec(
        architecture=Gru(hidden_size=4, layers=2, structured_inputs="square"),
        parametrization=RotationSvd(count_u=1, count_v=3, penalty=0.01),
        signature=Signature(input_size=3, sequence_length=2, output_size=2),
    )
    network = spec.build(seed=0)
    linears = [part for part in network.modules() if isinstance(part, RotationSvdLinear)]
    # Six recurrent matrices, and the second layer's three input matrices.
    assert sorted(linear.num_matrices for linear in linears) == [3, 6]
    with torch.no_grad():
        for linear in linears:
            linear.s.fill_(0)
    total = penalty(network)
    assert total is not None
    assert total.item() == pytest.approx(0.5 * 0.01 * 9 * 4)


def test_half_precision_weights_are_made_in_single_precision() -> None:
    linear = linear_of(RotationSvd(count_u=31, count_v=31), 32).bfloat16()
    factors = linear.make_form()
    assert isinstance(factors, DenseForm)
    assert factors.weight.dtype == torch.bfloat16
    exact = linear.double().make_form().whole()
    torch.testing.assert_close(factors.weight.double(), exact, atol=2**-9, rtol=0)


@pytest.mark.parametrize("name", ["count_u", "count_v"])
def test_too_many_stages_are_refused(name: str) -> None:
    spec = RotationSvd.model_validate({"count_u": 1, "count_v": 1, name: 6})
    with pytest.raises(SlotError, match=rf"{name} = 6 .* 1 to 5"):
        linear_of(spec, 6)
    with pytest.raises(SlotError, match="1 x 1"):
        linear_of(spec, 1)
    with pytest.raises(SlotError, match="square"):
        spec.check(Slot(out_features=8, in_features=9))
