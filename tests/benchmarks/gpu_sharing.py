"""`python -m tests.benchmarks.gpu_sharing [PROCESSES]`: what processes lose that share a GPU.

Each of them does what a small sequence does, step after step: a product of 50 samples by a matrix
of 128 x 128, and a hyperbolic tangent. One alone, then eight or as many as were asked for, at once;
the time is that of the slowest. Call it without and with CUDA's MPS (`nvidia-cuda-mps-control -d`):
without it the GPU does the work of one process at a time. Without a GPU it says so.
"""

import multiprocessing
import sys
import time
from threading import Barrier

import torch

STEPS = 100_000
_PROCESSES = 8


def seconds(barrier: Barrier) -> float:
    """Of all steps, begun when all processes are ready."""
    weight = torch.randn(128, 128, device="cuda") / 12
    start = torch.randn(50, 128, device="cuda")

    def run(steps: int) -> None:
        state = start
        for _ in range(steps):
            state = torch.tanh(state @ weight)
        torch.cuda.synchronize()

    run(200)
    barrier.wait()
    begin = time.perf_counter()
    run(STEPS)
    return time.perf_counter() - begin


def slowest(processes: int) -> float:
    """Seconds of the slowest of so many at once."""
    context = multiprocessing.get_context("spawn")
    with context.Manager() as manager, context.Pool(processes) as pool:
        barrier = manager.Barrier(processes)
        return max(pool.map(seconds, [barrier] * processes, chunksize=1))


def main() -> None:
    """Measure and print."""
    if not torch.cuda.is_available():
        sys.stdout.write("No GPU here that torch can use: nothing was measured.\n")
        return
    processes = int(sys.argv[1]) if len(sys.argv) > 1 else _PROCESSES
    alone, together = slowest(1), slowest(processes)
    sys.stdout.write(
        f"{torch.cuda.get_device_name()}: one process {alone:.2f} s, {processes} at once "
        f"{together:.2f} s, {together / alone:.2f} times as long\n"
    )


if __name__ == "__main__":
    main()
