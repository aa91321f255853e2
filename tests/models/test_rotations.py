import pytest
import torch

from models.architectures import Rnn
from models.errors import SlotError
from models.forms import DenseForm
from models.linear import cached_forms
from models.model import ModelSpec
from models.parametrizations import PackedRotations
from models.parametrizations.packed_rotations import PackedRotationsLinear
from models.spec import Signature, Slot
from tests.models.reference import circle_schedule, rotation_product
from tests.models.structure import jacobian_rank, trained


def linear_of(spec: PackedRotations, size: int, gates: int = 2) -> PackedRotationsLinear:
    slot = Slot(out_features=size, in_features=size, gates=gates)
    linear = spec.build(slot, generator=torch.Generator().manual_seed(1))
    assert isinstance(linear, PackedRotationsLinear)
    return linear


@pytest.mark.parametrize(("size", "count"), [(2, 1), (3, 3), (6, 2), (6, 5), (7, 7), (9, 4)])
def test_weight_is_the_product_of_single_rotations_stage_by_stage(size: int, count: int) -> None:
    linear = linear_of(PackedRotations(count=count), size).double()
    for theta, weight in zip(linear.rotations.theta, linear.dense_weight(), strict=True):
        expected = rotation_product(size, circle_schedule(size)[:count], theta)
        torch.testing.assert_close(weight, expected, atol=1e-13, rtol=0)


@pytest.mark.parametrize("size", [6, 7])
def test_angles_start_all_round_the_circle_or_at_the_identity(size: int) -> None:
    uniform = linear_of(PackedRotations(count=5), size, gates=50).rotations.theta
    assert 0 <= uniform.min() < 0.1
    assert 6.2 < uniform.max() <= 2 * torch.pi
    assert uniform.mean().item() == pytest.approx(torch.pi, abs=0.3)
    still = linear_of(PackedRotations(count=5, initialisation="identity"), size)
    assert torch.equal(still.dense_weight(), torch.eye(size).expand(2, size, size))


@pytest.mark.parametrize(("size", "count"), [(2, 1), (5, 5), (6, 5), (7, 3), (8, 2)])
@pytest.mark.parametrize("initialisation", ["uniform", "identity"])
def test_training_keeps_the_matrix_a_rotation(size: int, count: int, initialisation: str) -> None:
    spec = PackedRotations.model_validate({"count": count, "initialisation": initialisation})
    start = linear_of(spec, size).double().dense_weight()
    weight = trained(linear_of(spec, size)).dense_weight()
    assert (weight - start).abs().amax((1, 2)).min() > 0.1
    identity = torch.eye(size, dtype=torch.float64).expand(2, size, size)
    torch.testing.assert_close(weight @ weight.mT, identity, atol=1e-12, rtol=0)
    torch.testing.assert_close(torch.linalg.det(weight), torch.ones(2, dtype=torch.float64))


@pytest.mark.parametrize("size", [2, 3, 4, 5, 6, 7])
def test_all_stages_have_the_angles_of_the_rotation_group(size: int) -> None:
    count = size - 1 if size % 2 == 0 else size
    linear = linear_of(PackedRotations(count=count), size, gates=1)
    assert linear.degrees_of_freedom() == jacobian_rank(linear) == size * (size - 1) // 2


def test_states_and_their_gradients_keep_their_norms_with_abs() -> None:
    signature = Signature(input_size=3, sequence_length=1, output_size=2)
    spec = ModelSpec(
        architecture=Rnn(hidden_size=12, activation="abs"),
        parametrization=PackedRotations(count=4),
        signature=signature,
    )
    network = spec.build(seed=0).double()
    linear = next(part for part in network.modules() if isinstance(part, PackedRotationsLinear))
    first = torch.randn(4, 12, dtype=torch.float64, requires_grad=True)
    state = first
    with cached_forms(linear):
        for _ in range(50):
            state = linear.apply_weight(state).abs()
    upstream = torch.randn(4, 12, dtype=torch.float64)
    (gradient,) = torch.autograd.grad(state, first, upstream)
    torch.testing.assert_close(state.norm(dim=1), first.norm(dim=1), atol=1e-12, rtol=0)
    torch.testing.assert_close(gradient.norm(dim=1), upstream.norm(dim=1), atol=1e-12, rtol=0)


def test_half_precision_weights_are_made_in_single_precision() -> None:
    linear = linear_of(PackedRotations(count=31), 32).bfloat16()
    factors = linear.make_form()
    assert isinstance(factors, DenseForm)
    assert factors.weight.dtype == torch.bfloat16
    for theta, weight in zip(linear.rotations.theta.double(), factors.weight, strict=True):
        expected = rotation_product(32, circle_schedule(32), theta)
        # Half a unit in the last of 8 places of the largest entries, and nothing of 31 stages.
        torch.testing.assert_close(weight.double(), expected, atol=2**-9, rtol=0)
    linear.dense_weight().sum().backward()
    assert linear.rotations.theta.grad is not None
    assert linear.rotations.theta.grad.dtype == torch.bfloat16


def test_checkpoints_hold_the_angles_alone() -> None:
    state = linear_of(PackedRotations(count=3), 7).state_dict()
    assert {name: tuple(tensor.shape) for name, tensor in state.items()} == {
        "rotations.theta": (2, 3, 3)
    }


def test_too_many_stages_and_a_single_coordinate_are_refused() -> None:
    with pytest.raises(SlotError, match=r"count = 6 .* 1 to 5"):
        linear_of(PackedRotations(count=6), 6)
    linear_of(PackedRotations(count=7), 7)
    with pytest.raises(SlotError, match="1 x 1"):
        linear_of(PackedRotations(count=1), 1)
