"""Sequences of the uRNN by transforms, against its equation with whole matrices in double."""

import itertools
from collections.abc import Sequence

import pytest
import torch
from torch import Tensor

from models.backends.loops import urnn_sequence
from models.forms import DenseForm
from models.kernels.library import library
from models.kernels.unitary import (
    LARGEST_PRIME,
    UnitaryTensors,
    transform_products,
    transforms,
    unitary_sequence,
)
from models.math.complex_matrices import real_form
from models.math.unitary import fourier_product
from tests.models.kernels.cases import random_unitary

pytestmark = pytest.mark.skipif(library() is None, reason="no C++ compiler here")

SIZES = (1, 2, 3, 5, 6, 7, 8, 12, 15, 60, 64, 96, 100, 121, 127, 128, 251, 340)
"""Every radix alone and behind others, primes of every way, more than the innermost cache."""
BATCHES = (1, 3, 4, 7, 8, 15, 16, 19, 35)
"""One less and more than the lanes of every kind of vector."""
MOST_LANES = 16
LEARNT = [name for name in UnitaryTensors._fields if name != "order"]

# Some hundred roundings of 6e-8 in a step, and a rescaling that enlarges them where a modulus is
# small: torch's own operations in single precision are as far off.
TOLERANCE = 2e-4


def in_double_precision(tensors: UnitaryTensors) -> UnitaryTensors:
    """The same numbers as leaves of their own."""
    return UnitaryTensors(
        *(t.detach().double().requires_grad_() if t.is_floating_point() else t for t in tensors)
    )


def step_by_step(tensors: UnitaryTensors, lengths: Tensor | None = None) -> Tensor:
    """All states, by the matrices as a whole."""
    models: list[Tensor] = []
    for model in range(len(tensors.h0)):
        addends, phases, reflections, order, bias, state = (tensor[model] for tensor in tensors)
        weight = fourier_product(phases[None], reflections[None], order.argsort())
        form = DenseForm(real_form(weight.real, weight.imag))
        states: list[Tensor] = []
        for step, addend in enumerate(addends):
            ((after,),) = urnn_sequence(form, addend[None], (state,), bias=bias)
            if lengths is not None:
                after = torch.where((step < lengths[model])[:, None], after, state)
            state = after
            states.append(state)
        models.append(torch.stack(states))
    return torch.stack(models)


def close(found: Tensor, expected: Tensor, what: str, tolerance: float = TOLERANCE) -> None:
    scale = max(expected.abs().max().item(), 1.0) if expected.numel() else 1.0
    error = (found.double() - expected).abs().max().item() if expected.numel() else 0.0
    assert error <= tolerance * scale, f"{what}: {error} of {scale}"


def random_lengths(steps: int, batch: int, *, models: int = 1) -> Tensor:
    generator = torch.Generator().manual_seed(3)
    return torch.randint(1, steps + 1, (models, batch), generator=generator)


def compare(
    tensors: UnitaryTensors,
    lengths: Tensor | None = None,
    *,
    wanted: Sequence[str] = LEARNT,
    of_states: bool = True,
    of_last: bool = True,
) -> None:
    """States, the last one, and all gradients that are wanted."""
    exact = in_double_precision(tensors)
    expected = step_by_step(exact, lengths)
    states, last = unitary_sequence(tensors, lengths, states=of_states, keep=True)
    generator = torch.Generator().manual_seed(1)
    total, exact_total = torch.zeros(()), torch.zeros((), dtype=torch.float64)
    for used, found, right in ((of_states, states, expected), (of_last, last, expected[:, -1])):
        upstream = torch.randn(right.shape, generator=generator)
        if used:
            close(found, right, "states", 2e-5)
            total = total + (found * upstream).sum()
            exact_total = exact_total + (right * upstream).sum()
    ours = torch.autograd.grad(total, [getattr(tensors, name) for name in wanted])
    theirs = torch.autograd.grad(exact_total, [getattr(exact, name) for name in wanted])
    for name, one, other in zip(wanted, ours, theirs, strict=True):
        close(one, other, f"gradient of {name}")


@pytest.mark.parametrize("size", SIZES)
def test_states_and_gradients_are_those_of_the_equation(size: int) -> None:
    for batch, ragged in itertools.product((1, 5, 19), (False, True)):
        compare(random_unitary(4, batch, size), random_lengths(4, batch) if ragged else None)


@pytest.mark.parametrize("batch", BATCHES)
def test_every_batch_is_computed_alike(batch: int) -> None:
    compare(random_unitary(6, batch, 20))
    compare(random_unitary(6, batch, 20), random_lengths(6, batch))
    compare(random_unitary(1, batch, 17), torch.ones(1, batch, dtype=torch.int64))


@pytest.mark.parametrize("size", [1, 12, 37])
def test_models_have_matrices_orders_and_lengths_of_their_own(size: int) -> None:
    for batch in (1, 19):
        compare(random_unitary(4, batch, size, models=3))
        compare(random_unitary(4, batch, size, models=3), random_lengths(4, batch, models=3))


def found_by(threads: int, tensors: UnitaryTensors) -> list[Tensor]:
    """States, the last one, and all gradients by the sum of the states' squares."""
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        states, last = unitary_sequence(tensors, None, states=True, keep=True)
        learnt = [getattr(tensors, name) for name in LEARNT]
        return [states, last, *torch.autograd.grad(states.square().sum(), learnt)]
    finally:
        torch.set_num_threads(before)


def test_models_together_have_the_very_numbers_of_each_alone() -> None:
    """The work is worth four threads; three of them have two models in common."""
    tensors = random_unitary(40, 2 * MOST_LANES, 60, models=4)
    models = [
        UnitaryTensors(
            *(one[m : m + 1].detach().requires_grad_(one.requires_grad) for one in tensors)
        )
        for m in range(4)
    ]
    apart = [found_by(1, one) for one in models]
    alone = [torch.cat(parts) for parts in zip(*apart, strict=True)]
    for threads in (1, 2, 4):
        assert all(map(torch.equal, found_by(threads, tensors), alone))
    three = found_by(3, tensors)
    assert all(map(torch.equal, three, found_by(3, tensors)))
    for found, exact in zip(three, alone, strict=True):
        close(found, exact.double(), "gradient", 1e-5)


@pytest.mark.parametrize(("of_states", "of_last"), [(True, False), (False, True)])
@pytest.mark.parametrize("ragged", [False, True])
def test_gradients_of_states_alone_and_of_the_last_one_alone(
    of_states: bool, of_last: bool, ragged: bool
) -> None:
    lengths = random_lengths(5, 9) if ragged else None
    compare(random_unitary(5, 9, 24), lengths, of_states=of_states, of_last=of_last)


@pytest.mark.parametrize("name", LEARNT)
def test_each_gradient_is_there_alone_and_missing_alone(name: str) -> None:
    tensors = random_unitary(3, 5, 12)
    compare(tensors, wanted=[name])
    others = [one for one in LEARNT if one != name]
    compare(tensors._replace(**{name: getattr(tensors, name).detach()}), wanted=others)


def test_a_sequence_goes_on_from_its_last_state() -> None:
    tensors = random_unitary(7, 5, 30)
    states, last = unitary_sequence(tensors, None, states=True, keep=True)
    _, middle = unitary_sequence(
        tensors._replace(addends=tensors.addends[:, :4]), None, states=False, keep=True
    )
    rest, end = unitary_sequence(
        tensors._replace(addends=tensors.addends[:, 4:], h0=middle), None, states=True, keep=True
    )
    assert torch.equal(middle, states[:, 3])
    assert torch.equal(rest, states[:, 4:])
    assert torch.equal(end, last)
    whole = torch.autograd.grad(last.square().sum(), tensors.h0, retain_graph=True)[0]
    parts = torch.autograd.grad(end.square().sum(), tensors.h0)[0]
    torch.testing.assert_close(parts, whole)


def test_what_is_not_kept_is_computed_all_the_same() -> None:
    tensors = random_unitary(5, 6, 18)
    with torch.no_grad():
        every, last = unitary_sequence(tensors, None, states=True, keep=False)
        nothing, alone = unitary_sequence(tensors, None, states=False, keep=False)
    kept, _ = unitary_sequence(tensors, None, states=True, keep=True)
    assert nothing.shape == (0,)
    assert torch.equal(every, kept)
    assert torch.equal(alone, last)
    with pytest.raises(ValueError, match="keep=True"):
        unitary_sequence(tensors, None, states=True, keep=False)


def test_reflections_may_be_none_and_of_any_length() -> None:
    tensors = random_unitary(3, 5, 12)
    with torch.no_grad():
        tensors.reflections[0, 0] = 0
    compare(tensors)
    states, _ = unitary_sequence(tensors, None, states=True, keep=True)
    (gradient,) = torch.autograd.grad(states.square().sum(), tensors.reflections)
    assert not gradient[0, 0].any()
    assert gradient[0, 1].all()
    for length in (1e-30, 1e-5, 1e25):
        scaled = tensors._replace(reflections=tensors.reflections.detach() * length)
        found, _ = unitary_sequence(scaled, None, states=True, keep=True)
        torch.testing.assert_close(found, states, atol=2e-6, rtol=0)


def test_a_modulus_of_zero_has_no_slope() -> None:
    """No state, and inputs that are zero: what is rescaled is, too, whatever the bias adds."""
    tensors = random_unitary(3, 4, 10)
    with torch.no_grad():
        tensors.h0.zero_()
        tensors.addends.zero_()
        tensors.addends[0, 2, 1] = 1
    compare(tensors)


def test_a_bias_that_takes_all_leaves_no_gradient() -> None:
    tensors = random_unitary(3, 4, 10)
    with torch.no_grad():
        tensors.bias.fill_(-100)
    states, _ = unitary_sequence(tensors, None, states=True, keep=True)
    assert not states.any()
    gradients = torch.autograd.grad(states.sum(), [getattr(tensors, name) for name in LEARNT])
    assert not any(gradient.any() for gradient in gradients)


def test_a_nan_is_seen_in_the_result() -> None:
    tensors = random_unitary(3, 4, 10)
    with torch.no_grad():
        tensors.h0[0, 1, 3] = torch.nan
        states, last = unitary_sequence(tensors, None, states=True, keep=True)
    assert states[0, :, 1].isnan().all()
    assert last[0, 1].isnan().all()
    assert not states[0, :, [0, 2, 3]].isnan().any()


def test_memory_of_earlier_calls_is_not_read() -> None:
    """Workspaces are kept between calls: these are full of NaN when the second call begins."""
    tensors = random_unitary(3, 5, 22)
    poison = UnitaryTensors(
        *(torch.full_like(t, torch.nan).requires_grad_() if t.requires_grad else t for t in tensors)
    )
    states, _ = unitary_sequence(poison, None, states=True, keep=True)
    states.sum().backward()
    # Fills what torch leaves uninitialised with NaN, too.
    torch.use_deterministic_algorithms(mode=True)
    try:
        compare(tensors)
        compare(tensors, random_lengths(3, 5))
    finally:
        torch.use_deterministic_algorithms(mode=False)


def test_several_threads_give_the_same_numbers_in_every_run() -> None:
    tensors = random_unitary(40, 80, 64)
    alone, three, again = found_by(1, tensors), found_by(3, tensors), found_by(3, tensors)
    assert all(map(torch.equal, three, again))
    for one, other in zip(alone, three, strict=True):
        close(one, other.double(), "gradient", 1e-5)


def test_no_sample_is_no_work() -> None:
    tensors = random_unitary(3, 0, 6)
    states, last = unitary_sequence(tensors, None, states=True, keep=True)
    assert states.shape == (1, 3, 0, 12)
    assert last.shape == (1, 0, 12)
    (gradient,) = torch.autograd.grad(states.sum(), tensors.phases)
    assert not gradient.any()


@pytest.mark.parametrize("ragged", [False, True])
def test_the_operator_keeps_torchs_rules(ragged: bool) -> None:
    tensors = random_unitary(4, 3, 6, models=2)
    lengths = random_lengths(4, 3, models=2) if ragged else None
    results = torch.library.opcheck(
        torch.ops.reflectory.unitary_sequence.default, (*tensors, lengths, True, True)
    )
    assert set(results.values()) == {"SUCCESS"}


def test_primes_decide_which_lengths_have_a_transform() -> None:
    assert [size for size in range(525) if not transforms(size)] == [0, 521, 523]
    assert transforms(3 * LARGEST_PRIME**2)
    assert not transforms(2 * 521)
    tensors = random_unitary(2, 1, 521)
    with pytest.raises(ValueError, match=f"n is 521; .* primes up to {LARGEST_PRIME}"):
        unitary_sequence(tensors, None, states=True, keep=True)
    # A power of 2 takes the least, and no transform more than a product with its matrix.
    assert transform_products(512) < transform_products(500) < transform_products(508)
    assert all(
        transform_products(size) <= 4 * size**2 for size in range(4, 512) if transforms(size)
    )


def test_an_order_is_one_of_all_coordinates() -> None:
    tensors = random_unitary(2, 1, 6)
    twice = tensors._replace(order=torch.tensor([[0, 1, 2, 3, 4, 4]]))
    with pytest.raises(ValueError, match="order names some coordinate twice"):
        unitary_sequence(twice, None, states=True, keep=True)
