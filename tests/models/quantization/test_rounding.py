"""Rounding whole models: for good, for a while, and what their files are to hold."""

import copy
import math

import pytest
import torch
from torch import Tensor, nn

from models.architectures import Gru, Rnn
from models.errors import RoundingError
from models.linear import stored_matrices
from models.model import ModelSpec
from models.parametrizations import (
    Dense,
    Householder,
    LowRank,
    LowRankDiagonal,
    PackedRotations,
)
from models.quantization import (
    Bits,
    encode,
    encoded,
    layouts,
    round_,
    rounded_for_a_step,
    rounded_weights,
)
from models.spec import Signature

SIGNATURE = Signature(input_size=4, sequence_length=6, output_size=3)
BITS: tuple[Bits, ...] = (8, 4)


def gru(**fields: object) -> ModelSpec:
    document = {
        "architecture": Gru(hidden_size=12),
        "parametrization": LowRank(d=3),
        "signature": SIGNATURE,
        **fields,
    }
    return ModelSpec.model_validate(document)


def numbers(module: nn.Module) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in module.state_dict().items()}


def same(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[n], other[n]) for n in one)


@pytest.mark.parametrize("bits", BITS)
def test_matrices_are_rounded_and_vectors_are_not(bits: Bits) -> None:
    network = gru(parametrization=LowRankDiagonal(d=3)).build(seed=0)
    before = numbers(network)
    round_(network, bits)
    after = numbers(network)
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    assert changed == {"recurrent.left", "recurrent.right", "inputs.0.weight", "readout.weight"}
    assert changed == set(encoded(network, bits)) == set(layouts(network, bits))


def test_a_spec_of_few_bits_builds_the_rounded_model_of_the_same_seed() -> None:
    for bits in BITS:
        plain = gru().build(seed=3)
        round_(plain, bits)
        assert same(numbers(plain), numbers(gru(bits=bits).build(seed=3)))


def test_single_parameters_are_encoded_by_their_owner() -> None:
    network = gru(bits=8).build(seed=0)
    (linear,) = stored_matrices(network)
    found = encode(linear, "left", 8)
    assert found is not None
    assert found.scale is not None
    assert found.scale.shape == (3, 1, 3)
    assert torch.equal(found.integers.float() * found.scale.float(), linear.get_parameter("left"))
    assert encode(network.get_submodule("inputs.0"), "bias", 8) is None
    assert encode(network, "initial_state", 8) is None


def test_what_is_not_rounded_is_refused_by_name() -> None:
    network = gru().build(seed=0)
    with pytest.raises(RoundingError, match=r"recurrent\.left is not rounded to 8 bits"):
        encoded(network, 8)
    round_(network, 8)
    with pytest.raises(RoundingError, match=r"recurrent\.left is not rounded to 4 bits"):
        encoded(network, 4)
    with torch.no_grad():
        network.get_parameter("readout.weight")[1, 2] = math.nan
    for attempt in (encoded, round_):
        with pytest.raises(RoundingError, match=r"readout\.weight has nan at \[1, 2\]"):
            attempt(network, 8)


@pytest.mark.parametrize("bits", BITS)
@pytest.mark.parametrize("m", [2, 6])
def test_reflectors_make_orthogonal_matrices_at_any_bits(bits: Bits, m: int) -> None:
    spec = gru(
        architecture=Rnn(hidden_size=6, structured_inputs="none"),
        parametrization=Householder(m=m),
        bits=bits,
    )
    (linear,) = stored_matrices(spec.build(seed=1))
    weight = linear.double().dense_weight()
    torch.testing.assert_close(
        weight @ weight.mT, torch.eye(6, dtype=torch.float64).expand_as(weight)
    )


def test_normalised_rows_keep_their_lengths_at_any_bits() -> None:
    plain = gru(parametrization=LowRank(d=3, weight_norm=True))
    (before,) = stored_matrices(plain.build(seed=1))
    for bits in BITS:
        (after,) = stored_matrices(plain.model_copy(update={"bits": bits}).build(seed=1))
        for name, kept in (("left", after.get_parameter("left.gain")), ("right", None)):
            rows = after.get_submodule(name)()
            lengths = torch.ones(rows.shape[:-1]) if kept is None else kept.abs()
            torch.testing.assert_close(rows.norm(dim=-1), lengths)
        weights = before.dense_weight(), after.dense_weight()
        assert (weights[0] - weights[1]).norm() < (0.02 if bits == 8 else 0.2) * weights[0].norm()


def test_parameters_come_back_after_a_step_with_gradients_of_the_rounded_ones() -> None:
    spec = gru(architecture=Gru(hidden_size=12, reset="after"))
    x = torch.randn(5, 6, 4, generator=torch.Generator().manual_seed(0))
    network, rounded = spec.build(seed=2), spec.model_copy(update={"bits": 4}).build(seed=2)
    before = numbers(network)
    with rounded_for_a_step(network, 4):
        assert same(numbers(network), numbers(rounded))
        network(x).square().sum().backward()
    assert same(numbers(network), before)
    rounded(x).square().sum().backward()
    for name, parameter in network.named_parameters():
        gradient = rounded.get_parameter(name).grad
        assert gradient is not None
        assert gradient.abs().max() > 0
        assert parameter.grad is not None
        assert torch.equal(parameter.grad, gradient)


def test_gradients_of_reflectors_do_not_shrink_by_how_their_integers_are_stored() -> None:
    """The unrounded model's gradients are about as long: its vectors have the same lengths."""
    spec = gru(architecture=Rnn(hidden_size=12), parametrization=Householder(m=4))
    x = torch.randn(5, 6, 4, generator=torch.Generator().manual_seed(0))
    network = spec.build(seed=2)
    lengths: list[float] = []
    for bits in (None, 8):
        network.zero_grad()
        with rounded_for_a_step(network, bits):
            network(x).square().sum().backward()
        gradient = network.get_parameter("recurrent.u.entries").grad
        assert gradient is not None
        lengths.append(float(gradient.norm()))
    assert lengths[1] == pytest.approx(lengths[0], rel=0.05)


def test_numbers_that_are_not_finite_do_not_become_finite_ones() -> None:
    for spec in (
        gru(),
        gru(architecture=Rnn(hidden_size=6), parametrization=PackedRotations(count=2)),
    ):
        network = spec.build(seed=0)
        name = next(name for name in layouts(network, 8) if name.startswith("recurrent"))
        with torch.no_grad():
            network.get_parameter(name).view(-1)[0] = math.inf
        x = torch.randn(5, 6, 4, generator=torch.Generator().manual_seed(0))
        with rounded_weights(network, 8), torch.no_grad():
            assert network(x).isnan().any()
        assert network.get_parameter(name).view(-1)[0] == math.inf


def test_parameters_come_back_after_an_error_and_without_bits_nothing_happens() -> None:
    network = gru().build(seed=0)
    before = numbers(network)
    with pytest.raises(ZeroDivisionError), rounded_weights(network, 8):
        raise ZeroDivisionError
    assert same(numbers(network), before)
    with rounded_weights(network, None):
        assert same(numbers(network), before)


@torch.no_grad()
def test_eight_bits_lose_little_and_four_bits_more() -> None:
    x = torch.randn(8, 6, 4, generator=torch.Generator().manual_seed(0))
    for parametrization in (Dense(), LowRank(d=3)):
        network = gru(parametrization=parametrization).build(seed=0)
        answer = network(x)
        distances: list[float] = []
        for bits in BITS:
            rounded = copy.deepcopy(network)
            round_(rounded, bits)
            distances.append(float((rounded(x) - answer).norm() / answer.norm()))
        assert distances[0] < 0.03
        assert distances[0] < distances[1] < 0.4
