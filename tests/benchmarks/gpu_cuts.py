"""`python -m tests.benchmarks.gpu_cuts`: how thin sequences are best cut on a GPU.

For some shapes, each as the rule cuts it and in other ways (`models/backends/triton/tiles.py`), the
time of the two kernels and of all that is launched for a forward and a backward pass, in
microseconds a step, from torch's profiler. Kernels are compiled side by side before.
"""

import multiprocessing
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import torch
from torch.profiler import ProfilerActivity, profile

from models.backends.triton.cutting import run_forward
from models.backends.triton.gradients import Backward
from models.backends.triton.launches import Results, Run, run_of
from models.backends.triton.tiles import ThinTiles
from models.backends.vendor import allow_tf32
from models.kernels.calls import GATES, Tensors
from models.kernels.structs import CellName

STEPS, BATCH, INPUTS = 200, 128, 64
REPEATS = 5
_BUILDERS = 12


@dataclass(frozen=True)
class Shape:
    """A sequence, and how its units are divided."""

    cell: CellName
    size: int
    rank: int
    parts: int
    warps: int


def shapes() -> Iterator[Shape]:
    """What is measured, of each cell the smaller sequences first."""
    cuts = {
        (128, 8): ((1, 2), (1, 4), (1, 8)),
        (256, 16): ((1, 4), (1, 8), (4, 2)),
        (256, 24): ((1, 16), (4, 4), (8, 2)),
        (512, 32): ((4, 8), (8, 4), (16, 2), (32, 1)),
        (1024, 64): ((16, 8), (32, 4), (64, 2)),
    }
    for cell in ("gru_reset_after", "lstm"):
        for (size, rank), found in cuts.items():
            for parts, warps in found:
                yield Shape(cell, size, rank, parts, warps)


def tensors_of(shape: Shape) -> Tensors:
    """Random numbers, of one model."""
    gates, n, d = GATES[shape.cell], shape.size, shape.rank

    def draw(*sizes: int, scale: float) -> torch.Tensor:
        return scale * torch.randn(1, *sizes, device="cuda")

    zeros = torch.zeros(1, BATCH, n, device="cuda")
    return Tensors(
        x=draw(STEPS, BATCH, INPUTS, scale=1.0),
        addends=None,
        w_in=draw(gates, n, INPUTS, scale=0.1),
        bias=draw(1, gates, n, scale=0.1),
        weight=None,
        left=draw(gates, n, d, scale=0.5 / d**0.5),
        right=draw(gates, d, n, scale=0.8 / n**0.5),
        diagonal=draw(gates, n, scale=0.2),
        h0=zeros,
        c0=zeros if shape.cell == "lstm" else None,
    )


def passes(shape: Shape) -> tuple[Callable[[], object], Callable[[], object]]:
    """A forward and a backward pass."""
    given = tensors_of(shape)
    by_rule = run_of(given, None, shape.cell, "tanh", 0.0, "ieee")
    assert isinstance(by_rule.tiles, ThinTiles)
    units = by_rule.tiles.units * by_rule.tiles.parts // shape.parts
    cut = ThinTiles(units, by_rule.tiles.inner, shape.parts, shape.warps)
    run: Run = replace(by_rule, tiles=cut)
    every = given.h0.new_empty(1, STEPS, BATCH, shape.size)
    inners = given.h0.new_empty(1, STEPS, BATCH, run.weights.rights * shape.rank)
    results = Results(every, torch.empty_like(every), inners, given.h0.clone(), given.h0.clone())
    upstream = torch.randn_like(every)
    wanted = [name not in ("x", "addends") for name in Tensors.names()[:10]]

    def backward() -> object:
        return Backward(run, results, (upstream, None, None, None), wanted).run_all()

    return lambda: run_forward(run, results, keep=True), backward


def build(shape: Shape) -> None:
    """Compile its kernels, which all processes find afterwards."""
    for one in passes(shape):
        one()
    torch.cuda.synchronize()


def times(call: Callable[[], object]) -> tuple[float, float]:
    """Microseconds a step of the kernel, and of all."""
    call()
    with profile(activities=[ProfilerActivity.CUDA]) as found:
        for _ in range(REPEATS):
            call()
        torch.cuda.synchronize()
    events = found.key_averages()
    kernel = sum(one.self_device_time_total for one in events if one.key.endswith("_steps"))
    total = sum(one.self_device_time_total for one in events)
    return kernel / REPEATS / STEPS, total / REPEATS / STEPS


def main() -> None:
    """Measure and print."""
    if not torch.cuda.is_available():
        sys.stdout.write("No GPU here that torch can use: nothing was measured.\n")
        return
    allow_tf32(allowed=False)
    found = [*shapes()]
    with multiprocessing.get_context("spawn").Pool(_BUILDERS) as pool:
        pool.map(build, found, chunksize=1)
    sys.stdout.write(
        f"{torch.cuda.get_device_name()}, torch {torch.__version__}\n\n"
        "| cell | n | d | programs of a sample | warps | forward: kernel | all | backward: kernel |"
        f" all |\n|{'---|' * 9}\n"
    )
    for shape in found:
        forward, backward = map(times, passes(shape))
        cells = (*forward, *backward)
        sys.stdout.write(
            f"| {shape.cell} | {shape.size} | {shape.rank} | {shape.parts} | {shape.warps} | "
            f"{' | '.join(f'{one:.2f}' for one in cells)} |\n"
        )
        sys.stdout.flush()


if __name__ == "__main__":
    main()
