"""Triton's kernels compute what the cells' equations say, in its interpreter and on GPUs."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from models.backends.triton.tiles import SHARED_BYTES, Precision, Weights, tiles_for
from tests.benchmarks.triton_builds import FILE, SHAPES, Pass, Shape, build
from tests.models.backends.triton_cases import Case, cases, errors, tolerance

needs_triton = pytest.mark.skipif(
    importlib.util.find_spec("triton") is None,
    reason="triton is not installed; the extra `test` has it on Linux with x86-64",
)
on_a_gpu = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device"),
]


def interpreted(*arguments: str) -> str:
    """What a process says in which kernels are interpreted."""
    result = subprocess.run(
        [sys.executable, *arguments],
        env={**os.environ, "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr[-4000:]
    return result.stdout


@pytest.fixture(scope="module")
def interpreted_errors() -> dict[str, dict[str, float]]:
    return json.loads(interpreted("-m", "tests.models.backends.triton_cases"))


@needs_triton
@pytest.mark.parametrize("case", [*cases()], ids=lambda case: case.named)
def test_interpreted_results_and_gradients_are_the_equations(
    case: Case, interpreted_errors: dict[str, dict[str, float]]
) -> None:
    found = interpreted_errors[case.named]
    assert all(error <= tolerance(case, interpreted=True) for error in found.values()), found


@needs_triton
@pytest.mark.parametrize("case", [pytest.param(c, marks=on_a_gpu, id=c.named) for c in cases()])
def test_results_and_gradients_on_a_gpu_are_the_equations(case: Case) -> None:
    found = errors(case, "cuda")
    assert all(error <= tolerance(case, interpreted=False) for error in found.values()), found


@pytest.mark.parametrize("capability", SHARED_BYTES)
def test_what_fits_takes_no_more_than_a_block_may_have(capability: int) -> None:
    shared_bytes = SHARED_BYTES[capability]
    tiles = [
        tiles_for(
            Weights(gates, size, rank, rights), precision=precision, shared_bytes=shared_bytes
        )
        for gates in (1, 3, 4)
        for size in (1, 100, 128, 256, 512, 1024)
        for rank in (0, 1, 24, 64)
        for rights in ({0} if rank == 0 else {1, gates})
        for precision in PRECISIONS
    ]
    found = [one for one in tiles if one is not None]
    assert len(found) < len(tiles)
    assert all(one.shared_bytes <= shared_bytes for one in found)
    assert any(one.streamed for one in found)


PRECISIONS: tuple[Precision, ...] = ("ieee", "tf32x3", "tf32", "bf16")


def test_the_papers_shapes_fit_on_an_h100() -> None:
    h100 = SHARED_BYTES[90]
    on_chip = [
        Weights(1, 512, 32, 1),
        Weights(3, 256, 24, 3),
        Weights(3, 512, 16, 3),
        Weights(3, 128),
    ]
    for weights in on_chip:
        tiles = tiles_for(weights, precision="ieee", shared_bytes=h100)
        assert tiles is not None
        assert not tiles.streamed
    lstm = tiles_for(Weights(4, 256, 24, 4), precision="ieee", shared_bytes=h100)
    assert lstm is not None
    assert lstm.streamed
    assert tiles_for(Weights(4, 256), precision="ieee", shared_bytes=h100) is None


STACKED = """
import torch
from models.backends.call import ProjectedInputs, PlainInputs, SequenceCall
from models.backends.loops import gru_sequence_reset_after
from models.backends.sequences import choose, computing
from models.backends.torch_loop import TorchLoop
from models.backends.triton.backend import TritonKernels
from models.forms import BiasedForm, DenseForm, LowRankForm
from models.kernels.calls import Kind

kind = Kind("gru_reset_after", "tanh", 0.0)
torch.manual_seed(0)
left, right, diagonal = torch.randn(2, 3, 6, 2), torch.randn(2, 1, 2, 6), torch.randn(2, 3, 6)
x, w_in = torch.randn(4, 3, 5), torch.randn(2, 18, 5)
bias, own = torch.randn(2, 18), torch.randn(2, 3, 6)
learning = [left, right, diagonal, w_in, bias, own]
for tensor in learning:
    tensor.mul_(0.3).requires_grad_()

def call(left, right, diagonal, w_in, bias, own, x=x, **other):
    form = BiasedForm(LowRankForm(left, right, diagonal), own)
    state = x.new_zeros(x.shape[1], 6)
    inputs = PlainInputs(x, w_in, bias)
    return SequenceCall(kind, gru_sequence_reset_after, form, inputs, (state,), **other)

def states(backend, **other):
    def of_one(*tensors):
        all_states, last = backend.run(call(*tensors, **other))
        return last[0] if other else all_states
    return of_one

assert TritonKernels().takes(call(*(one[0] for one in learning)))
assert "triton" not in computing(call(*(one[0] for one in learning)))
assert not TritonKernels().takes(call(*(one[0].double() for one in learning), x=x.double()))
for other in ({}, {"return_sequences": False}):
    together = torch.vmap(states(TritonKernels(), **other))(*learning)
    apart = torch.stack([states(TorchLoop())(*(one[m] for one in learning)) for m in range(2)])
    expected = apart[:, -1] if other else apart
    torch.testing.assert_close(together, expected, atol=1e-5, rtol=1e-5)
    ours = torch.autograd.grad(together.square().sum(), learning)
    theirs = torch.autograd.grad(expected.square().sum(), learning)
    torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=1e-4)
with torch.no_grad():
    one = [tensor[0] for tensor in learning]
    nothing, last = TritonKernels().run(call(*one, return_sequences=False))
    assert nothing.numel() == 0
    torch.testing.assert_close(last[0], apart[0, -1], atol=1e-5, rtol=1e-5)
    states, last = TritonKernels().run(call(*one, x=x[:, :0]))
    assert states.shape == (4, 0, 6) and last[0].shape == (0, 6)

from models.backends.triton.sequence import sequence
from models.backends.tensors import tensors_of
given = tensors_of(call(*one))
order = given.in_order()[:10]
torch.library.opcheck(
    torch.ops.reflectory.triton_sequence,
    (*[None if t is None else t.detach().requires_grad_() for t in order], None,
     "gru_reset_after", "tanh", 0.0, "ieee", True),
)
try:
    sequence(kind, tensors_of(call(torch.zeros(3, 2048, 2), torch.zeros(1, 2, 2048),
        torch.zeros(3, 2048), torch.zeros(6144, 5), torch.zeros(6144), torch.zeros(3, 2048))
        ._replace(initial=(torch.zeros(3, 2048),))), None, precision="ieee", keep=False)
except ValueError as error:
    print(error)
"""


@needs_triton
def test_the_backend_computes_what_the_loop_does_alone_and_for_members_of_a_stack() -> None:
    said = interpreted("-c", STACKED)
    assert "do not fit into 232448 bytes of shared memory" in said


def test_triton_is_asked_for_by_nobody_but_who_runs_a_sequence() -> None:
    program = "import sys, models.backends.sequences; print('triton' in sys.modules)"
    assert interpreted("-c", program).strip() == "False"


@needs_triton
@pytest.mark.parametrize("capability", SHARED_BYTES)
@pytest.mark.parametrize("which", ["forward", "backward"])
def test_a_kernel_compiles_without_a_gpu_within_registers_and_memory(
    which: Pass, capability: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    shape = Shape("gru_reset_after", 128, 24)
    tiles = tiles_for(
        shape.weights, precision=shape.precision, shared_bytes=SHARED_BYTES[capability]
    )
    assert tiles is not None
    found = build(shape, tiles, which, capability, ragged=True)
    # Of a few numbers before the first step; what a step spills is a hundred times more.
    assert found.spilled_bytes <= 16
    assert found.shared_bytes <= tiles.shared_bytes


def test_the_document_has_every_shape_on_both_gpus() -> None:
    document = FILE.read_text()
    for shape in SHAPES:
        for capability in SHARED_BYTES:
            assert f"| {shape.named} | {shape.precision} | sm_{capability} |" in document


@needs_triton
def test_the_benchmark_for_gpus_runs_through_without_one(tmp_path: Path) -> None:
    file = tmp_path / "measured.md"
    said = interpreted("-m", "tests.benchmarks.gpu_sequences", "--dry", str(file))
    assert "triton, triton" in said
    assert "2 stacked lstm of n = 8" in said
    assert said.strip() in file.read_text()
    assert file.read_text().startswith("# Sequences on a GPU")
