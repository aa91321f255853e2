"""Which backend runs a sequence, and that all of them compute the same."""

import logging
import math
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import cast

import pytest
import torch
from torch import Tensor

from models.backends import cuda_graphs, sequences
from models.backends.call import (
    LARGE_PROJECTION,
    Inputs,
    Loop,
    PlainInputs,
    ProjectedInputs,
    SequenceCall,
    State,
)
from models.backends.cuda_graphs import Graphs
from models.backends.loops import (
    gru_sequence_reset_after,
    gru_sequence_reset_before,
    lstm_sequence,
    rnn_sequence,
)
from models.backends.sequences import (
    VENDOR_LSTM_BATCH,
    VENDOR_LSTM_SIZE,
    choose,
    computing,
    run_sequence,
)
from models.backends.torch_loop import GraphedLoop
from models.backends.vendor import allow_tf32
from models.forms import BiasedForm, DenseForm, Form, LowRankForm, MaskedForm, RotatedForm
from models.kernels.calls import GATES, Kind, Tensors
from models.kernels.choice import Backend, prefer
from models.kernels.library import library
from models.kernels.structs import CELLS, CellName
from models.math.activations import activation_of
from tests.models.backends.test_cuda_graphs import Recorder
from tests.models.kernels.cases import (
    FORMS,
    SLOPE,
    FormName,
    Sizes,
    in_double_precision,
    random_tensors,
    step_by_step,
)

needs_kernels = pytest.mark.skipif(library() is None, reason="no C++ compiler here")

KINDS = [
    *(Kind("rnn", name, SLOPE) for name in ("tanh", "relu", "leaky_relu", "abs", "identity")),
    *(Kind(cell, "tanh", 0.0) for cell in CELLS if cell != "rnn"),
]
VENDORS_KINDS = {("rnn", "tanh"), ("rnn", "relu"), ("gru_reset_after", "tanh"), ("lstm", "tanh")}
DEVICES = [
    "cpu",
    pytest.param(
        "cuda",
        marks=[
            pytest.mark.gpu,
            pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
        ],
    ),
]

SMALL = Sizes(models=1, steps=6, batch=3, size=7, inputs=4)


@pytest.fixture(autouse=True)
def single_precision() -> Iterator[None]:
    """A GPU would round factors to 10 bits in cuDNN's products."""
    before = torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32
    allow_tf32(allowed=False)
    yield
    torch.backends.cudnn.allow_tf32, torch.backends.cuda.matmul.allow_tf32 = before


def name_of(kind: Kind) -> str:
    return kind.activation if kind.cell == "rnn" else kind.cell


def drawn(kind: Kind | None, form: FormName, sizes: Sizes, *, biases: int = 2) -> Tensors:
    """Random tensors of a cell, with so many biases of each gate."""
    cell = "rnn" if kind is None else cast(CellName, kind.cell)
    return random_tensors(cell, form, sizes, biases=biases)


def loop_of(kind: Kind) -> Loop:
    """The cell as a loop in torch's operations."""
    cells: dict[str, Loop] = {
        "rnn": partial(rnn_sequence, activation=activation_of(kind.activation, leak=kind.slope)),
        "gru_reset_before": gru_sequence_reset_before,
        "gru_reset_after": gru_sequence_reset_after,
        "lstm": lstm_sequence,
    }
    return cells[kind.cell]


def never(*_: object, **__: object) -> Iterator[State]:
    raise AssertionError("the loop was not to run")


def as_call(
    kind: Kind | None, tensors: Tensors, loop: Loop | None = None, *, return_sequences: bool = True
) -> SequenceCall:
    """One model's tensors as a network hands them over."""

    def only(tensor: Tensor) -> Tensor:
        return tensor[0]

    form: Form
    if tensors.weight is not None:
        form = DenseForm(only(tensors.weight))
    elif tensors.u_turns is not None:
        turns = tensors.u_turns, tensors.diagonal, tensors.v_turns
        form = RotatedForm(*(only(tensor) for tensor in turns if tensor is not None))
    else:
        assert tensors.left is not None
        assert tensors.right is not None
        diagonal = None if tensors.diagonal is None else only(tensors.diagonal)
        form = LowRankForm(only(tensors.left), only(tensors.right), diagonal)
    own, recurrent = _biases(tensors)
    if recurrent is not None:
        form = BiasedForm(form, recurrent)
    inputs: Inputs
    if tensors.x is None:
        assert tensors.addends is not None
        addends = only(tensors.addends)
        inputs = ProjectedInputs(addends if own is None else addends + own.flatten())
    else:
        assert tensors.w_in is not None
        bias = None if own is None else own.flatten()
        inputs = PlainInputs(only(tensors.x), only(tensors.w_in).flatten(0, 1), bias)
    cell = () if tensors.c0 is None else (only(tensors.c0),)
    return SequenceCall(
        kind=kind,
        loop=loop or (never if kind is None else loop_of(kind)),
        form=form,
        inputs=inputs,
        initial=(only(tensors.h0), *cell),
        return_sequences=return_sequences,
    )


def _biases(tensors: Tensors) -> tuple[Tensor | None, Tensor | None]:
    """Those of the inputs' products and of the states', `[G, n]`."""
    if tensors.bias is None:
        return None, None
    own, *recurrent = tensors.bias[0]
    return own, recurrent[0] if recurrent else None


def run(
    kind: Kind, tensors: Tensors, loop: Loop | None = None, *, return_sequences: bool = True
) -> tuple[Tensor, State]:
    """One model's sequence, as a network runs it."""
    return run_sequence(as_call(kind, tensors, loop, return_sequences=return_sequences))


def moved(tensors: Tensors, device: str, dtype: torch.dtype = torch.float32) -> Tensors:
    """The same numbers as leaves of another device and type."""
    return Tensors(
        *(
            None if t is None else t.detach().to(device, dtype).requires_grad_()
            for t in tensors.in_order()
        )  # pyright: ignore[reportArgumentType] -- h0 is given
    )


def close(found: Tensor, expected: Tensor, tolerance: float) -> None:
    scale = max(expected.abs().max().item(), 1e-6)
    assert (found.detach().cpu().double() - expected).abs().max().item() <= tolerance * scale


def check(kind: Kind, tensors: Tensors, *, tolerance: float) -> None:
    """All states, the last one and the gradients of everything, against the cell's equations."""
    exact = in_double_precision(moved(tensors, "cpu", torch.float64))
    expected = step_by_step(kind, exact)
    states, last = run(kind, tensors)
    close(states, expected.states[0], tolerance)
    close(last[0], expected.states[0, -1], tolerance)
    total, exact_total = states.square().sum(), expected.states.square().sum()
    if expected.cells is not None:
        close(last[1], expected.cells[0, -1], tolerance)
        total, exact_total = total + last[1].sum(), exact_total + expected.cells[0, -1].sum()
    names = [name for name in Tensors.names() if getattr(tensors, name) is not None]
    ours = torch.autograd.grad(total, [getattr(tensors, name) for name in names])
    theirs = torch.autograd.grad(exact_total, [getattr(exact, name) for name in names])
    for one, other in zip(ours, theirs, strict=True):
        close(one, other, 5 * tolerance)
    with torch.inference_mode():
        nothing, alone = run(kind, tensors, return_sequences=False)
    assert nothing.numel() == 0 or nothing.shape == states.shape
    close(alone[0], expected.states[0, -1], tolerance)


def asked(kind: Kind | None, form: FormName, sizes: Sizes, **like: object) -> SequenceCall:
    """A call with random tensors."""
    tensors = drawn(kind, form, sizes)
    return as_call(kind, moved(tensors, "cpu", **like))  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("inputs", [4, 0], ids=["plain inputs", "projected inputs"])
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kind", KINDS, ids=name_of)
def test_every_backend_that_computes_a_sequence_computes_the_same(
    kind: Kind, form: FormName, inputs: int, device: str
) -> None:
    sizes = Sizes(models=1, steps=6, batch=3, size=7, inputs=inputs)
    check_all_backends(kind, moved(drawn(kind, form, sizes), device))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("form", FORMS)
def test_every_backend_does_without_a_bias_of_the_states(form: FormName, device: str) -> None:
    kind = Kind("gru_reset_after", "tanh", 0.0)
    check_all_backends(kind, moved(drawn(kind, form, SMALL, biases=1), device))


def check_all_backends(kind: Kind, tensors: Tensors) -> None:
    call = as_call(kind, tensors)
    backends = computing(call)
    assert backends[-1] == "torch"
    for backend in backends:
        # Single precision, a few steps: a few dozen roundings of 6e-8. But cuDNN's hyperbolic
        # tangent is the GPU's own, of 11 bits.
        approximate = backend == "vendor" and call.state.is_cuda and kind.activation == "tanh"
        with prefer(backend):
            assert choose(call) == backend
            # A graph replays from the second call on.
            for _ in range(3):
                check(kind, tensors, tolerance=3e-3 if approximate else 5e-6)


@needs_kernels
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kind", KINDS, ids=name_of)
def test_our_kernels_come_first_and_the_vendors_second(kind: Kind, form: FormName) -> None:
    vendors = form == "dense" and (kind.cell, kind.activation) in VENDORS_KINDS
    expected = ("cpp", "vendor", "torch") if vendors else ("cpp", "torch")
    if kind.cell != "lstm":
        assert computing(asked(kind, form, SMALL)) == expected
    with torch.no_grad():
        assert computing(asked(kind, form, SMALL)) == expected


@needs_kernels
def test_a_dense_lstm_is_trained_by_the_vendor_but_for_large_batches_of_small_ones() -> None:
    kind = Kind("lstm", "tanh", 0.0)
    small, large = VENDOR_LSTM_BATCH, VENDOR_LSTM_BATCH + 1

    def of(size: int, batch: int, form: FormName = "dense") -> SequenceCall:
        return asked(kind, form, Sizes(models=1, steps=1, batch=batch, size=size, inputs=1))

    assert computing(of(8, small)) == ("vendor", "cpp", "torch")
    assert computing(of(8, large)) == ("cpp", "vendor", "torch")
    assert choose(of(VENDOR_LSTM_SIZE - 1, large)) == "cpp"
    assert choose(of(VENDOR_LSTM_SIZE, large)) == "vendor"
    assert choose(of(8, small, "low_rank")) == "cpp"
    with torch.no_grad():
        assert choose(of(8, small)) == "cpp"
    call = of(8, small)
    assert isinstance(call.inputs, PlainInputs)
    still = call._replace(
        form=call.form.rebuild([tensor.detach() for tensor in call.form.tensors()]),
        inputs=PlainInputs(call.inputs.x.detach(), call.inputs.weight.detach(), None),
        initial=tuple(part.detach() for part in call.initial),
    )
    assert choose(still) == "cpp"
    # One thing that learns is enough.
    assert choose(still._replace(initial=call.initial)) == "vendor"
    assert choose(still._replace(inputs=call.inputs)) == "vendor"
    assert choose(still._replace(form=call.form)) == "vendor"
    gru = Kind("gru_reset_after", "tanh", 0.0)
    assert choose(asked(gru, "dense", SMALL)) == "cpp"


@pytest.mark.parametrize("kind", KINDS, ids=name_of)
def test_double_precision_is_the_vendors_or_torchs(kind: Kind) -> None:
    vendors = (kind.cell, kind.activation) in VENDORS_KINDS
    found = choose(asked(kind, "dense", SMALL, dtype=torch.float64))
    assert found == ("vendor" if vendors else "torch")
    assert choose(asked(kind, "tied", SMALL, dtype=torch.float64)) == "torch"
    for form in FORMS:
        tensors = moved(drawn(kind, form, SMALL), "cpu", torch.float64)
        check(kind, tensors, tolerance=1e-13)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kind", KINDS, ids=name_of)
def test_half_precision_is_not_ours(kind: Kind, form: FormName) -> None:
    assert "cpp" not in computing(asked(kind, form, SMALL, dtype=torch.bfloat16))
    tensors = drawn(kind, form, SMALL)
    exact = step_by_step(kind, in_double_precision(tensors))
    states, _ = run(kind, moved(tensors, "cpu", torch.bfloat16))
    assert states.dtype == torch.bfloat16
    # 8 bits, rounded a few times per step.
    close(states, exact.states[0], 0.05)


def test_a_cell_that_only_its_loop_computes_is_looped() -> None:
    assert computing(asked(None, "dense", SMALL)) == ("torch",)


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("cell", CELLS)
def test_masked_matrices_are_looped(cell: CellName, tied: bool) -> None:
    kind, gates = Kind(cell, "tanh", 0.0), GATES[cell]
    tensors = moved(random_tensors(cell, "low_rank", SMALL), "cpu", torch.float64)
    call = as_call(kind, tensors)
    generator = torch.Generator().manual_seed(2)
    shape = 1 if tied else gates, SMALL.batch, SMALL.size
    mask = torch.randint(0, 2, shape, generator=generator).double()
    masked = call._replace(form=MaskedForm(call.form, mask))
    assert computing(masked) == ("torch",)
    states, _ = run_sequence(masked)
    # The first step by hand: what a matrix sees of h0, and of r * h0, is what its mask leaves.
    assert tensors.left is not None
    assert tensors.right is not None
    weight = (tensors.left @ tensors.right)[0]
    base = call.inputs.projections()[0].unflatten(-1, (gates, SMALL.size)).transpose(0, 1)
    h = call.state

    def gate(number: int, state: Tensor) -> Tensor:
        bias = call.form.bias()
        assert bias is not None
        return (mask[0 if tied else number] * state) @ weight[number].T + bias[number]

    if cell == "rnn":
        first = (base[0] + gate(0, h)).tanh()
    elif cell == "lstm":
        enter, forget, _, leave = ((base[g] + gate(g, h)).sigmoid() for g in range(4))
        candidate = (base[2] + gate(2, h)).tanh()
        first = leave * (forget * call.initial[1] + enter * candidate).tanh()
    else:
        update, reset = ((base[g] + gate(g, h)).sigmoid() for g in range(2))
        before = kind is not None and kind.cell == "gru_reset_before"
        product = gate(2, reset * h) if before else reset * gate(2, h)
        first = update * h + (1 - update) * (base[2] + product).tanh()
    close(states[0], first.detach(), 1e-12)


@pytest.mark.parametrize("backend", ["cpp", "vendor", "torch"])
@pytest.mark.parametrize("kind", KINDS, ids=name_of)
def test_no_sample_is_no_work_and_no_error(kind: Kind, backend: Backend) -> None:
    none = Sizes(models=1, steps=4, batch=0, size=6, inputs=2)
    for form in FORMS:
        tensors = drawn(kind, form, none)
        with prefer(backend):
            assert choose(as_call(kind, tensors)) != "vendor"
            states, last = run(kind, tensors)
        assert states.shape == (4, 0, 6)
        assert all(part.shape == (0, 6) for part in last)


@needs_kernels
def test_the_environment_names_a_backend_and_comes_before_a_preference(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tanh, leaky = Kind("rnn", "tanh", 0.0), Kind("rnn", "leaky_relu", 0.1)
    monkeypatch.setenv("REFLECTORY_BACKEND", "vendor")
    assert choose(asked(tanh, "dense", SMALL)) == "vendor"
    # Where it does not compute the same, the fastest that does is taken.
    assert choose(asked(leaky, "dense", SMALL)) == "cpp"
    with prefer("torch"):
        assert choose(asked(tanh, "dense", SMALL)) == "vendor"
    monkeypatch.setenv("REFLECTORY_BACKEND", "graph")
    assert choose(asked(tanh, "dense", SMALL)) == "cpp"
    monkeypatch.setenv("REFLECTORY_BACKEND", "torch")
    assert choose(asked(tanh, "dense", SMALL)) == "torch"
    monkeypatch.delenv("REFLECTORY_BACKEND")
    with prefer("torch"):
        assert choose(asked(tanh, "dense", SMALL)) == "torch"
    assert choose(asked(tanh, "dense", SMALL)) == "cpp"


def test_an_unknown_backend_is_refused_with_those_that_there_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("REFLECTORY_BACKEND", "fortran")
    with pytest.raises(
        ValueError, match="'fortran'; allowed are cpp, triton, vendor, graph, torch"
    ):
        choose(asked(Kind("rnn", "tanh", 0.0), "dense", SMALL))


@needs_kernels
@pytest.mark.parametrize("kind", KINDS, ids=name_of)
def test_where_our_kernels_run_no_loop_does(kind: Kind) -> None:
    with torch.no_grad():
        states, _ = run(kind, drawn(kind, "tied", SMALL), never)
    assert states.shape == (SMALL.steps, SMALL.batch, SMALL.size)


@pytest.mark.parametrize("carries", [True, False])
@pytest.mark.parametrize("backend", ["cpp", "torch", "vendor"])
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kind", KINDS, ids=name_of)
def test_a_samples_last_state_is_that_after_its_own_length(
    kind: Kind, form: FormName, backend: Backend, carries: bool
) -> None:
    """As of each sample alone, cut at its length; gradients behind the end are 0."""
    lengths = torch.tensor([2, SMALL.steps, 1])
    tensors = drawn(kind, form, SMALL)
    call = as_call(kind, tensors)._replace(lengths=lengths, carries=carries)
    if backend not in computing(call):
        vendors = form == "dense" and (kind.cell, kind.activation) in VENDORS_KINDS
        assert backend == "vendor"
        assert not vendors or (carries and kind.cell == "lstm")
        return
    with prefer(backend):
        states, last = run_sequence(call)
        _, last_alone = run_sequence(call._replace(return_sequences=False))
    exact = step_by_step(kind, in_double_precision(tensors))
    for sample, length in enumerate(lengths.tolist()):
        end = exact.states[0, length - 1, sample]
        close(states[:length, sample], exact.states[0, :length, sample], 5e-6)
        for found in (last, last_alone):
            close(found[0][sample], end, 5e-6)
            if exact.cells is not None and carries:
                close(found[1][sample], exact.cells[0, length - 1, sample], 5e-6)
    given = tensors.x if tensors.x is not None else tensors.addends
    assert given is not None
    (gradient,) = torch.autograd.grad(last[0].sum(), given)
    for sample, length in enumerate(lengths.tolist()):
        assert not gradient[0, length:, sample].any()
        assert gradient[0, length - 1, sample].any()


def test_what_runs_step_by_step_says_so_once(caplog: pytest.LogCaptureFixture) -> None:
    sequences._say_slowest.cache_clear()
    call = asked(Kind("lstm", "tanh", 0.0), "low_rank", SMALL, dtype=torch.float64)
    with caplog.at_level(logging.INFO, sequences.__name__):
        for _ in range(3):
            run_sequence(call)
        with prefer("torch"):
            run_sequence(asked(Kind("rnn", "tanh", 0.0), "dense", SMALL))
    assert [record.getMessage() for record in caplog.records] == [
        "lstm with low_rank matrices, torch.float64 on cpu runs step by step in torch's "
        "operations: no kernel here computes it"
    ]


def test_a_recorded_sequence_takes_the_biases_of_who_asks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Cells of one shape share a recording, which runs again here as a graph does on a GPU."""
    recorder = Recorder()
    monkeypatch.setattr(cuda_graphs, "run", Graphs(recorder).run)
    kind = Kind("gru_reset_after", "tanh", 0.0)
    drawn_cells = [random_tensors("gru_reset_after", "tied", SMALL, seed=seed) for seed in (0, 1)]
    for tensors in drawn_cells * 3:
        bias = tensors.bias
        assert bias is not None
        states, _ = GraphedLoop().run(as_call(kind, tensors))
        exact = in_double_precision(tensors)
        assert exact.bias is not None
        expected = step_by_step(kind, exact)
        close(states, expected.states[0], 5e-6)
        (found,) = torch.autograd.grad(states.square().sum(), bias)
        (gradient,) = torch.autograd.grad(expected.states.square().sum(), exact.bias)
        close(found, gradient, 2e-5)
    assert recorder.count == 2  # forward and backward


WITHOUT_KERNELS = """
import torch
from models.kernels.calls import Kind
from models.kernels.choice import Backend, prefer
from models.forms import DenseForm, LowRankForm
from models.backends.call import PlainInputs, SequenceCall
from models.backends.sequences import computing
state = (torch.zeros(2, 3),)
inputs = PlainInputs(torch.zeros(4, 2, 1), torch.zeros(3, 1), None)
for activation in ("tanh", "leaky_relu"):
    kind = Kind("rnn", activation, 0.1)
    low_rank = LowRankForm(torch.zeros(1, 3, 1), torch.zeros(1, 1, 3))
    for form in (DenseForm(torch.zeros(1, 3, 3)), low_rank):
        print(*computing(SequenceCall(kind, None, form, inputs, state)))
"""


def run_python(program: str, *arguments: str, **environment: str) -> str:
    result = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


def test_without_our_kernels_the_vendors_or_a_loop_stand_in() -> None:
    found = run_python(WITHOUT_KERNELS, REFLECTORY_KERNELS="torch").splitlines()
    assert found == ["vendor torch", "torch", "torch", "torch"]


WITH_TORCH_ALONE = """
import importlib, importlib.util, pkgutil, sys
for name in ("pydantic", "scipy", "optuna", "sqlalchemy", "safetensors", "sklearn"):
    sys.modules[name] = None
import models.backends, models.forms, models.kernels, models.math
for package in (models.backends, models.forms, models.kernels, models.math):
    for module in pkgutil.iter_modules(package.__path__, package.__name__ + "."):
        importlib.import_module(module.name)
        print(module.name)
"""


def test_kernels_and_operations_need_torch_alone() -> None:
    imported = run_python(WITH_TORCH_ALONE).splitlines()
    assert {"models.kernels.sequence", "models.backends.sequences"} <= set(imported)


COLLECT_WITH_TORCH_ALONE = """
import sys
import pytest
for name in ("pydantic", "scipy", "optuna", "sqlalchemy", "safetensors", "sklearn", "onnx"):
    sys.modules[name] = None
sys.exit(pytest.main([*sys.argv[1:], "--collect-only", "-q"]))
"""


def test_what_runs_on_a_gpu_is_collected_with_torch_alone() -> None:
    """As `make gpu` calls it, with whatever plugins there are left out."""
    makefile = (Path(__file__).parents[3] / "Makefile").read_text()
    words = re.search(r"TORCH_ALONE := ((?:.*\\\n)*.*)\n", makefile)
    assert words is not None
    arguments = words[1].replace("\\\n", " ").split()
    environment = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    said = run_python(COLLECT_WITH_TORCH_ALONE, *arguments, "-m", "gpu", **environment)
    assert "error" not in said, said
    assert re.search(r"\d+/\d+ tests collected", said), said


def test_the_vendor_is_not_asked_for_members_of_a_stack() -> None:
    """Its kernels cannot be carried over them."""
    kind, tensors = Kind("rnn", "tanh", 0.0), drawn(Kind("rnn", "tanh", 0.0), "dense", SMALL)
    call = as_call(kind, tensors, loop_of(kind))

    def states(weight: Tensor) -> Tensor:
        own = call._replace(form=call.form.rebuild([*call.form.tensors()[:-1], weight]))
        assert "vendor" not in computing(own)
        return run_sequence(own)[0]

    assert "vendor" in computing(call)
    *_, weight = call.form.tensors()
    with prefer("vendor"), torch.no_grad():
        together = torch.vmap(states)(torch.stack((weight, weight.mT)))
    alone, _ = run_sequence(call)
    close(together[0], alone.detach().double(), 5e-6)


@pytest.mark.parametrize("bias", [True, False])
def test_many_samples_of_few_inputs_are_projected_as_any(bias: bool) -> None:
    generator = torch.Generator().manual_seed(0)
    shapes = (300, 20, 3), (60, 3), (60,)
    assert math.prod(shapes[0][:-1]) * shapes[1][0] >= LARGE_PROJECTION

    def draw(shape: tuple[int, ...]) -> Tensor:
        return torch.randn(shape, generator=generator, dtype=torch.float64).requires_grad_()

    given = [draw(shape) for shape in shapes[: 2 + bias]]
    x, weight, *biases = given
    found = PlainInputs(x, weight, biases[0] if biases else None).projections()
    expected = torch.nn.functional.linear(*given)
    torch.testing.assert_close(found, expected)
    upstream = draw(tuple(expected.shape)).detach()
    for ours, theirs in zip(
        torch.autograd.grad(found, given, upstream),
        torch.autograd.grad(expected, given, upstream),
        strict=True,
    ):
        torch.testing.assert_close(ours, theirs)
