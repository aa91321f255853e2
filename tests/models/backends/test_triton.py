"""Triton's kernels compute what the cells' equations say, in its interpreter and on GPUs."""

import importlib.util
import json
import os
import subprocess
import sys
from functools import cache, partial
from pathlib import Path

import pytest
import torch

from models.backends.triton.launches import thin_weights
from models.backends.triton.tiles import (
    SHARED_BYTES,
    Precision,
    ThinTiles,
    Weights,
    WholeTiles,
    tiles_for,
)
from models.kernels.calls import GATES, Kind
from models.kernels.structs import CellName
from tests.benchmarks.triton_builds import FILE, SHAPES, Pass, Shape, build
from tests.models.backends.triton_cases import Case, cases, errors, in_short, tolerance

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


IN_SHORT = in_short()


@cache
def interpreted_errors(*, short: bool) -> dict[str, dict[str, float]]:
    names = [case.named for case in cases() if (case.named in IN_SHORT) == short]
    return json.loads(interpreted("-m", "tests.models.backends.triton_cases", *names))


@needs_triton
@pytest.mark.parametrize(
    "case",
    [
        pytest.param(c, marks=[] if c.named in IN_SHORT else pytest.mark.nightly, id=c.named)
        for c in cases()
    ],
)
def test_interpreted_results_and_gradients_are_the_equations(case: Case) -> None:
    found = interpreted_errors(short=case.named in IN_SHORT)[case.named]
    assert all(error <= tolerance(case, interpreted=True) for error in found.values()), found


@needs_triton
@pytest.mark.parametrize("case", [pytest.param(c, marks=on_a_gpu, id=c.named) for c in cases()])
def test_results_and_gradients_on_a_gpu_are_the_equations(case: Case) -> None:
    found = errors(case, "cuda")
    assert all(error <= tolerance(case, interpreted=False) for error in found.values()), found


PRECISIONS: tuple[Precision, ...] = ("ieee", "tf32x3", "tf32", "bf16")


@pytest.mark.parametrize("capability", SHARED_BYTES)
def test_whole_matrices_that_fit_take_no_more_than_a_block_may_have(capability: int) -> None:
    shared_bytes = SHARED_BYTES[capability]
    tiles = [
        tiles_for(Weights(gates, size), precision=precision, shared_bytes=shared_bytes)
        for gates in (1, 3, 4)
        for size in (1, 100, 128, 256, 512)
        for precision in PRECISIONS
    ]
    found = [one for one in tiles if one is not None]
    assert 0 < len(found) < len(tiles)
    for one in found:
        assert isinstance(one, WholeTiles)
        assert one.shared_bytes <= shared_bytes


@pytest.mark.parametrize("rank", [1, 24, 64])
@pytest.mark.parametrize("size", [1, 100, 128, 256, 512, 1024])
@pytest.mark.parametrize("cell", ["rnn", "gru_reset_before", "gru_reset_after", "lstm"])
@pytest.mark.parametrize("tied", [False, True])
def test_thin_factors_that_fit_leave_a_thread_registers_for_the_rest(
    cell: CellName, size: int, rank: int, *, tied: bool
) -> None:
    weights = thin_weights(Kind(cell, "tanh", 0.0), size, rank, 1 if tied else GATES[cell])
    tiles = tiles_for(weights, precision="ieee", shared_bytes=SHARED_BYTES[90])
    if tiles is None:
        # It meets twice in a step, and is not divided.
        assert cell == "gru_reset_before"
        return
    assert isinstance(tiles, ThinTiles)
    assert tiles.units * tiles.parts >= size
    assert tiles.inner >= rank
    numbers = (weights.gates + weights.rights) * tiles.units * tiles.inner
    assert numbers <= 128 * 32 * tiles.warps


def test_the_papers_shapes_fit_on_an_h100() -> None:
    fits = partial(tiles_for, precision="ieee", shared_bytes=SHARED_BYTES[90])
    alone = [Weights(1, 512, 32, 1), Weights(3, 256, 16, 3), Weights(4, 256, 16, 4)]
    for weights in alone:
        tiles = fits(weights)
        assert isinstance(tiles, ThinTiles)
        assert tiles.parts == 1
    shared = {24: Weights(3, 256, 24, 3), 32: Weights(4, 512, 32, 4), 64: Weights(4, 1024, 64, 4)}
    parts: list[int] = []
    for weights in shared.values():
        tiles = fits(weights)
        assert isinstance(tiles, ThinTiles)
        parts.append(tiles.parts)
    assert parts == [8, 16, 64]
    assert fits(Weights(3, 128)) is not None
    assert fits(Weights(4, 256)) is None


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
    sequence(kind, tensors_of(call(torch.zeros(3, 4096, 65), torch.zeros(3, 65, 4096),
        torch.zeros(3, 4096), torch.zeros(12288, 5), torch.zeros(12288), torch.zeros(3, 4096))
        ._replace(initial=(torch.zeros(3, 4096),))), None, precision="ieee", keep=False)
except ValueError as error:
    print(error)
"""


@needs_triton
def test_the_backend_computes_what_the_loop_does_alone_and_for_members_of_a_stack() -> None:
    said = interpreted("-c", STACKED)
    assert "size=4096, rank=65, rights=3, divides=True) do not fit on a GPU" in said


REPLAYED = """
import torch
from models.backends import cuda_graphs
from tests.models.backends import triton_cases
from tests.models.backends.test_cuda_graphs import Recorder

recorder = Recorder()
cuda_graphs.can_be_used = lambda device: True
cuda_graphs._graphs = cuda_graphs.Graphs(recorder)
for case in [one for one in triton_cases.cases() if one.kind.cell == "lstm"][1:3]:
    for seed in range(4):
        found = triton_cases.errors(case, "cpu", seed=seed)
        assert all(one <= 5e-6 for one in found.values()), found
print(recorder.count)
"""


@needs_triton
@pytest.mark.slow
def test_launches_are_recorded_once_for_a_shape_and_replayed_with_other_numbers() -> None:
    assert interpreted("-c", REPLAYED).strip() == "4"  # forward and backward of two cases


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
    assert found.shared_bytes <= SHARED_BYTES[capability]


def test_the_document_has_every_shape_on_both_gpus() -> None:
    document = FILE.read_text()
    for shape in SHAPES:
        for capability in SHARED_BYTES:
            assert f"| {shape.named} | {shape.precision} | sm_{capability} |" in document


@pytest.mark.slow
@needs_triton
def test_the_benchmark_for_gpus_runs_through_without_one(tmp_path: Path) -> None:
    file = tmp_path / "measured.md"
    said = interpreted("-m", "tests.benchmarks.gpu_sequences", "--dry", str(file))
    assert "triton, triton" in said
    assert "2 stacked lstm of n = 8" in said
    assert said.strip() in file.read_text()
    assert file.read_text().startswith("# Sequences on a GPU")
