"""The kernels against the cells' equations in double precision."""

import itertools
import platform
from dataclasses import replace
from typing import cast

import pytest
import torch
from torch import Tensor

from models.kernels import sequence as sequence_module
from models.kernels.calls import GATES, Kind, Packed, Tensors, kept_floats
from models.kernels.library import library
from models.kernels.sequence import sequence
from models.kernels.structs import ACTIVATIONS, CELLS, CellName
from tests.models.kernels.cases import (
    FORMS,
    SLOPE,
    FormName,
    Sizes,
    in_double_precision,
    least_size,
    random_tensors,
    step_by_step,
)

pytestmark = pytest.mark.skipif(library() is None, reason="no C++ compiler here")

# A state is a sum of some hundred products at most, each rounded to 6e-8, through a few dozen steps
# that do not enlarge errors; gradients add up rounding over steps and samples.
TOLERANCE = 2e-5

KINDS = [
    *(Kind("rnn", activation, SLOPE) for activation in ACTIVATIONS),
    *(Kind(cell, "tanh", 0.0) for cell in CELLS if cell != "rnn"),
]
SIZES = [
    Sizes(models=1, steps=1, batch=1, size=1, inputs=1),
    Sizes(models=1, steps=5, batch=3, size=7, inputs=2),
    Sizes(models=2, steps=9, batch=14, size=33, inputs=3),
    Sizes(models=1, steps=40, batch=25, size=48, inputs=1),
    Sizes(models=1, steps=6, batch=13, size=64, inputs=17),
    Sizes(models=1, steps=4, batch=2, size=20, inputs=0),
    Sizes(models=3, steps=30, batch=1, size=5, inputs=2),
]


def cell_of(kind: Kind) -> CellName:
    return cast(CellName, kind.cell)


def name_of(kind: Kind) -> str:
    return kind.activation if kind.cell == "rnn" else kind.cell


def outer_states(kind: Kind, states: Tensor) -> Tensor:
    """H_t of what the operator gives."""
    return torch.where(states < 0, -states, states) if kind.activation == "abs" else states


def close(found: Tensor, expected: Tensor, what: str) -> None:
    scale = max(expected.abs().max().item(), 1e-6) if expected.numel() else 1.0
    error = (found.double() - expected).abs().max().item() if expected.numel() else 0.0
    assert error <= TOLERANCE * scale, f"{what}: {error} of {scale}"


def compare(kind: Kind, tensors: Tensors, lengths: Tensor | None) -> None:
    """States, last states and all gradients."""
    exact = in_double_precision(tensors)
    expected = step_by_step(kind, exact, lengths)
    states, _, last_h, last_c = sequence(kind, tensors, lengths, keep=True)
    found = outer_states(kind, states)
    generator = torch.Generator().manual_seed(1)

    def weights(like: Tensor) -> Tensor:
        return torch.randn(like.shape, generator=generator)

    pairs = [(found, expected.states), (last_h, expected.states[:, -1])]
    if expected.cells is not None:
        pairs.append((last_c, expected.cells[:, -1]))
    total, exact_total = torch.zeros(()), torch.zeros((), dtype=torch.float64)
    for (ours, theirs), what in zip(pairs, ("states", "last h", "last c"), strict=False):
        close(ours, theirs, what)
        upstream = weights(ours)
        total = total + (ours * upstream).sum()
        exact_total = exact_total + (theirs * upstream).sum()
    names = [n for n in Tensors.names() if getattr(tensors, n) is not None]
    ours = torch.autograd.grad(total, [getattr(tensors, n) for n in names])
    theirs = torch.autograd.grad(exact_total, [getattr(exact, n) for n in names])
    for name, one, other in zip(names, ours, theirs, strict=True):
        close(one, other, f"gradient of {name}")


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kind", KINDS, ids=name_of)
def test_states_and_gradients_are_those_of_the_equations(kind: Kind, form: FormName) -> None:
    for sizes, variable in itertools.product(SIZES, (False, True)):
        if sizes.size < least_size(form):
            continue
        generator = torch.Generator().manual_seed(3)
        shape = sizes.models, sizes.batch
        lengths = torch.randint(1, sizes.steps + 1, shape, generator=generator)
        compare(kind, random_tensors(cell_of(kind), form, sizes), lengths if variable else None)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("cell", CELLS)
def test_biases_that_are_not_given_are_zero(cell: CellName, form: FormName) -> None:
    kind, sizes = Kind(cell, "tanh", 0.0), Sizes(2, 5, 13, 21, 3)
    for rows in (0, 1):
        without = random_tensors(cell, form, sizes, biases=rows)
        compare(kind, without, None)
        given = without.bias
        given = torch.zeros(2, 1, GATES[cell], 21) if given is None else given.detach()
        zero = replace(without, bias=torch.cat((given, torch.zeros_like(given)), 1))
        with torch.no_grad():
            found, expected = (sequence(kind, t, None, keep=True) for t in (without, zero))
        assert all(map(torch.equal, found, expected))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("cell", CELLS)
def test_memory_of_earlier_calls_is_not_read(cell: CellName, form: FormName) -> None:
    """Workspaces are kept between calls: these are full of NaN when the second call begins."""
    kind, sizes = Kind(cell, "tanh", 0.0), Sizes(1, 7, 13, 21, 3)
    tensors = random_tensors(cell, form, sizes)
    poison = Tensors(
        *(
            None if t is None else torch.full_like(t, torch.nan).requires_grad_()
            for t in tensors.in_order()
        )  # pyright: ignore[reportArgumentType] -- h0 is given
    )
    states, _, last_h, _ = sequence(kind, poison, None, keep=True)
    (states.sum() + last_h.sum()).backward()
    # Fills what torch leaves uninitialised with NaN, too.
    torch.use_deterministic_algorithms(mode=True)
    try:
        compare(kind, tensors, None)
    finally:
        torch.use_deterministic_algorithms(mode=False)


@pytest.mark.parametrize("form", ["dense", "low_rank", "low_rank_diagonal", "tied"])
@pytest.mark.parametrize("cell", CELLS)
def test_weights_that_no_inner_cache_holds_are_shared_by_many_samples(
    cell: CellName, form: FormName
) -> None:
    generator = torch.Generator().manual_seed(5)
    for inputs in (0, 1, 2):
        lengths = torch.randint(1, 4, (1, 50), generator=generator)
        tensors = random_tensors(cell, form, Sizes(1, 3, 50, 320, inputs), rank=160)
        compare(Kind(cell, "tanh", 0.0), tensors, lengths)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("cell", CELLS)
def test_gates_that_are_kept_give_the_gradients_of_gates_that_are_computed_again(
    cell: CellName, form: FormName, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sequence_module, "LEAST_KEPT_SIZE", 1)
    kind, sizes = Kind(cell, "tanh", 0.0), Sizes(2, 40, 13, 21, 3)
    tensors = random_tensors(cell, form, sizes)
    lengths = torch.randint(1, 41, (2, 13), generator=torch.Generator().manual_seed(3))
    given = [t for t in tensors.in_order() if t is not None]

    def gradients(*, learns: bool) -> tuple[Tensor, ...]:
        states, _, last_h, _ = sequence(kind, tensors, lengths, keep=True, learns=learns)
        return torch.autograd.grad(states.square().sum() + last_h.sum(), given)

    kept, again = gradients(learns=True), gradients(learns=False)
    assert all(map(torch.equal, kept, again))


@pytest.mark.parametrize("cell", CELLS)
def test_no_more_gates_are_kept_than_memory_is_allowed(
    cell: CellName, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind = Kind(cell, "tanh", 0.0)
    tensors = random_tensors(cell, "low_rank", Sizes(2, 5, 13, 48, 3))
    count = kept_floats(kind, tensors)

    def kept() -> Tensor:
        arguments = *tensors.in_order(), None, kind.cell, kind.activation, kind.slope
        return torch.ops.reflectory.sequence(*arguments, True, True, 0)[4]

    assert kept().shape == (2, count)
    monkeypatch.setattr(sequence_module, "MOST_KEPT", 4 * 2 * count - 1)
    assert kept().shape == (0,)
    compare(kind, tensors, None)


@pytest.mark.parametrize("kind", KINDS, ids=name_of)
def test_a_nan_is_seen_in_the_result(kind: Kind) -> None:
    tensors = random_tensors(cell_of(kind), "dense", Sizes(1, 4, 3, 5, 2))
    with torch.no_grad():
        assert tensors.h0 is not None
        tensors.h0[0, 1] = torch.nan
        states, _, last_h, _ = sequence(kind, tensors, None, keep=True)
    assert states[0, :, 1].isnan().all()
    assert last_h[0, 1].isnan().all()
    assert not states[0, :, [0, 2]].isnan().any()


@pytest.mark.parametrize("cell", CELLS)
def test_several_threads_give_the_same_numbers_in_every_run(cell: CellName) -> None:
    kind, tensors = Kind(cell, "tanh", 0.0), random_tensors(cell, "dense", Sizes(1, 60, 50, 64, 3))
    names = [n for n in Tensors.names() if getattr(tensors, n) is not None]
    before = torch.get_num_threads()

    def gradients(threads: int) -> list[Tensor]:
        torch.set_num_threads(threads)
        states, _, _, _ = sequence(kind, tensors, None, keep=True)
        return list(
            torch.autograd.grad(states.square().sum(), [getattr(tensors, n) for n in names])
        )

    try:
        alone, three, again = gradients(1), gradients(3), gradients(3)
    finally:
        torch.set_num_threads(before)
    assert all(map(torch.equal, three, again))
    for one, other in zip(alone, three, strict=True):
        close(one, other.double(), cell)


@pytest.mark.parametrize("cell", CELLS)
def test_no_sample_is_no_work(cell: CellName) -> None:
    tensors = random_tensors(cell, "low_rank", Sizes(1, 4, 0, 6, 2))
    kind = Kind(cell, "tanh", 0.0)
    states, _, last_h, _ = sequence(kind, tensors, None, keep=True)
    assert states.shape == (1, 4, 0, 6)
    assert last_h.shape == (1, 0, 6)
    assert tensors.left is not None
    (gradient,) = torch.autograd.grad(states.sum(), [tensors.left])
    assert not gradient.any()


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("cell", CELLS)
def test_packed_weights_give_the_same_numbers_whatever_becomes_of_theirs(
    cell: CellName, form: FormName
) -> None:
    kind, tensors = Kind(cell, "tanh", 0.0), random_tensors(cell, form, Sizes(2, 5, 13, 21, 3))
    with torch.no_grad():
        expected = sequence(kind, tensors, None, keep=True)
        packed = Packed(kind, tensors)
        matrices = tensors.weight, tensors.left, tensors.u_turns, tensors.v_turns
        for weights in (*matrices, tensors.w_in, tensors.bias):
            if weights is not None:
                weights.zero_()
        found = sequence(kind, tensors, None, keep=True, packed=packed)
    assert all(map(torch.equal, expected, found))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("cell", CELLS)
def test_the_operator_keeps_torchs_rules(cell: CellName, form: FormName) -> None:
    tensors = random_tensors(cell, form, Sizes(2, 4, 3, 50, 2))
    lengths = torch.tensor([[1, 4, 2], [3, 3, 3]])
    kind = (cell, "abs" if cell == "rnn" else "tanh", 0.0)
    results = torch.library.opcheck(
        torch.ops.reflectory.sequence.default, (*tensors.in_order(), lengths, *kind, True, True, 0)
    )
    assert set(results.values()) == {"SUCCESS"}


def test_a_sequence_without_its_states_cannot_be_differentiated() -> None:
    tensors = random_tensors("rnn", "dense", Sizes(1, 4, 3, 7, 2))
    with pytest.raises(ValueError, match="keep=True"):
        sequence(Kind("rnn", "tanh", 0.0), tensors, None, keep=False)


@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="no such setting here")
@pytest.mark.parametrize("threads", [1, 2])
def test_what_is_too_small_for_full_precision_is_zero_within_and_only_there(threads: int) -> None:
    """Vanished gradients are such numbers, and take a processor many times as long."""
    kind, tiny = Kind("rnn", "identity", 0.0), 1e-39
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        drawn = random_tensors("rnn", "dense", Sizes(1, 60, 50, 64, 1))
        tensors = Tensors(*(None if t is None else t.detach() for t in drawn.in_order()))  # pyright: ignore[reportArgumentType] -- h0 is given
        tensors.h0.requires_grad_()
        states, _, _, _ = sequence(kind, tensors, None, keep=True)
        (found,) = torch.autograd.grad((states[:, 0] * tiny).sum(), tensors.h0, retain_graph=True)
        (larger,) = torch.autograd.grad((states[:, 0] * 1e-30).sum(), tensors.h0)
    finally:
        torch.set_num_threads(before)
    assert not found.any()
    assert larger.all()
    assert (torch.full((3,), tiny) * 0.5).all()
