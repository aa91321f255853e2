import hashlib

import numpy as np
import numpy.typing as npt
import pytest
import torch

from models.architectures import Rnn, Urnn
from models.errors import SlotError
from models.math.unitary import hashed_order
from models.model import ModelSpec
from models.parametrizations import UnitaryFft
from models.parametrizations.unitary_fft import UnitaryFftLinear
from models.spec import Signature, Slot
from tests.models.structure import jacobian_rank, trained

Matrix = npt.NDArray[np.complex128]


def linear_of(size: int, layers: int = 2, seed: int = 1) -> UnitaryFftLinear:
    slot = Slot(out_features=size, in_features=size, layers=layers, field="complex")
    linear = UnitaryFft().build(slot, generator=torch.Generator().manual_seed(seed))
    assert isinstance(linear, UnitaryFftLinear)
    stored = sum(parameter.numel() for parameter in linear.parameters())
    assert stored == UnitaryFft().parameter_count(slot) == layers * 7 * size
    return linear


def complex_weights(linear: UnitaryFftLinear) -> list[Matrix]:
    """The matrices that act on `(re | im)`, as complex ones of half the size."""
    weights: list[Matrix] = []
    for weight in linear.dense_weight().detach().numpy():
        size = len(weight) // 2
        np.testing.assert_array_equal(weight[:size, :size], weight[size:, size:])
        np.testing.assert_array_equal(weight[:size, size:], -weight[size:, :size])
        weights.append(weight[:size, :size] + 1j * weight[size:, :size])
    return weights


def product_of_matrices(phases: npt.NDArray[np.float64], vectors: Matrix) -> Matrix:
    """The seven factors as matrices, multiplied out; phases are [3, n], vectors [2, n]."""
    size = phases.shape[1]
    index = np.arange(size)
    fourier = np.exp(-2j * np.pi * np.outer(index, index) / size) / np.sqrt(size)
    diagonals = [np.diag(np.exp(1j * angles)) for angles in phases]
    reflections = [
        np.eye(size) - 2 * np.outer(v, v.conj()) / np.vdot(v, v).real if v.any() else np.eye(size)
        for v in vectors
    ]
    order = sorted(range(size), key=lambda i: hashlib.sha256(f"{i}".encode()).hexdigest())
    permutation = np.eye(size)[order]
    return (
        diagonals[2]
        @ reflections[1]
        @ fourier.conj().T
        @ diagonals[1]
        @ permutation
        @ reflections[0]
        @ fourier
        @ diagonals[0]
    )


def expected_weights(linear: UnitaryFftLinear) -> list[Matrix]:
    size = linear.slot.in_features
    return [
        product_of_matrices(phases, reflections[:, :size] + 1j * reflections[:, size:])
        for phases, reflections in zip(
            linear.phases.detach().double().numpy(),
            linear.reflections.detach().double().numpy(),
            strict=True,
        )
    ]


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 8, 13])
def test_weight_is_the_product_of_the_seven_matrices(size: int) -> None:
    linear = linear_of(size).double()
    for weight, expected in zip(complex_weights(linear), expected_weights(linear), strict=True):
        np.testing.assert_allclose(weight, expected, atol=1e-13)


@pytest.mark.parametrize("size", [1, 2, 5, 8])
def test_training_keeps_the_matrix_unitary(size: int) -> None:
    start = complex_weights(linear_of(size).double())
    linear = trained(linear_of(size))
    assert isinstance(linear, UnitaryFftLinear)
    for weight, before in zip(complex_weights(linear), start, strict=True):
        assert np.abs(weight - before).max() > 0.01
        np.testing.assert_allclose(weight @ weight.conj().T, np.eye(size), atol=1e-12)
    assert torch.equal(linear.singular_values(), torch.ones(2, 2 * size, dtype=torch.float64))


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 6, 7, 9])
def test_degrees_of_freedom_are_the_rank_of_the_jacobian(size: int) -> None:
    linear = linear_of(size, layers=1)
    assert linear.degrees_of_freedom() == jacobian_rank(linear)
    assert linear_of(size, layers=3).degrees_of_freedom() == 3 * linear.degrees_of_freedom()


def test_a_zero_vector_is_the_identity_and_stays() -> None:
    linear = linear_of(6).double()
    with torch.no_grad():
        linear.reflections[0, 0] = 0
        linear.reflections[1, 1] = 0
    for weight, expected in zip(complex_weights(linear), expected_weights(linear), strict=True):
        np.testing.assert_allclose(weight, expected, atol=1e-13)
    (linear.dense_weight() * torch.randn(2, 12, 12, dtype=torch.float64)).sum().backward()
    gradient = linear.reflections.grad
    assert gradient is not None
    assert gradient.isfinite().all()
    dead = (gradient == 0).all(-1)
    assert torch.equal(dead, torch.tensor([[True, False], [False, True]]))


@pytest.mark.parametrize("length", [1e-30, 1e-5, 1e25])
def test_lengths_of_the_vectors_mean_nothing(length: float) -> None:
    linear, scaled = linear_of(6), linear_of(6)
    with torch.no_grad():
        scaled.reflections.mul_(length)
    torch.testing.assert_close(scaled.dense_weight(), linear.dense_weight())


def test_start_is_spread_as_in_the_source() -> None:
    linear = linear_of(64, layers=20)
    assert -torch.pi <= linear.phases.min() < -3.1
    assert 3.1 < linear.phases.max() <= torch.pi
    limit = (6 / (2 + 2 * 64)) ** 0.5
    assert 0.99 * limit < linear.reflections.abs().max() <= limit
    assert linear.reflections.mean().abs() < 0.02 * limit


def test_the_permutation_is_the_same_for_ever_and_not_stored() -> None:
    assert sorted(hashed_order(100)) == list(range(100))
    digests = [hashlib.sha256(str(i).encode()).hexdigest() for i in hashed_order(100)]
    assert digests == sorted(digests)
    one, other = linear_of(9, seed=1), linear_of(9, seed=2)
    assert set(one.state_dict()) == {"phases", "reflections"}
    other.load_state_dict(one.state_dict())
    assert torch.equal(one.dense_weight(), other.dense_weight())


def test_half_precision_weights_are_made_in_single_precision() -> None:
    linear = linear_of(32).bfloat16()
    form = linear.make_form()
    assert form.whole().dtype == torch.bfloat16
    for weight, expected in zip(
        complex_weights(linear.float()), expected_weights(linear), strict=True
    ):
        np.testing.assert_allclose(weight, expected, atol=1e-6)
    exact = linear.make_form().whole()
    torch.testing.assert_close(form.whole().float(), exact, atol=2**-9, rtol=0)


def test_pixel_mnist_urnn_of_512_has_the_printed_count() -> None:
    """16,394, printed as 16k: Zhang, Lei, Dhillon, table 2."""
    spec = ModelSpec(
        architecture=Urnn(hidden_size=512),
        parametrization=UnitaryFft(),
        signature=Signature(input_size=1, sequence_length=784, output_size=10),
    )
    stored = sum(parameter.numel() for parameter in spec.build_on_meta().parameters())
    assert stored == spec.parameter_count() == 16_394


def test_real_and_rectangular_slots_are_refused() -> None:
    with pytest.raises(SlotError, match="complex matrices only"):
        UnitaryFft().check(Slot(out_features=4, in_features=4))
    with pytest.raises(SlotError, match="square matrices only"):
        UnitaryFft().check(Slot(out_features=4, in_features=5, field="complex"))
    spec = ModelSpec(
        architecture=Rnn(hidden_size=4),
        parametrization=UnitaryFft(),
        signature=Signature(input_size=1, sequence_length=2, output_size=1),
    )
    with pytest.raises(SlotError, match=r"rnn\.recurrent: unitary_fft: .*complex"):
        spec.build(seed=0)
