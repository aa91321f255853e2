"""Products by oneDNN and by MKL, with their gradients: `python -m tests.benchmarks.products`.

One thread, processor time, in turn; shown are medians and quartiles. On processors where both take
the same instructions nothing is to be gained, and torch's own library is left to it.
"""

import statistics
import sys
import time
from unittest.mock import patch

import torch

from models.math import products
from tests.benchmarks.cpu.machine import processor

_ROUNDS = 15
_SHAPES = (
    (128, 128, 128),
    (128, 256, 256),
    (100, 512, 256),
    (100, 1024, 256),
    (100, 256, 1024),
    (100, 1024, 1024),
    (128, 784, 1024),
    (640, 650, 10_000),
    (15_360, 128, 32),
    (4096, 64, 64),
)
_SIDES = {"MKL": 1 << 62, "oneDNN": 0}
_MULTIPLY_ADDS_OF_A_ROUND = 60_000_000


def _seconds(rows: int, ins: int, outs: int, least: int) -> float:
    x, weight = torch.randn(rows, ins), torch.randn(outs, ins)
    bias, slope = torch.zeros(outs), torch.randn(rows, outs)
    of = [one.requires_grad_() for one in (x, weight, bias)]
    times = max(1, _MULTIPLY_ADDS_OF_A_ROUND // (rows * ins * outs))
    with patch.multiple(products, _LEAST_MULTIPLY_ADDS=least, _mkl_is_narrow=lambda: True):
        began = time.process_time()
        for _ in range(times):
            torch.autograd.grad(products.affine(x, weight, bias), of, slope)
        return (time.process_time() - began) / times


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")


def main() -> None:
    """Print the table."""
    torch.set_num_threads(1)
    taken = "is" if products._mkl_is_narrow() else "is not"
    _say(f"{processor()} · torch {torch.__version__} · oneDNN {taken} taken here\n")
    _say("| rows x in x out | million multiply-adds | MKL, us | oneDNN, us | ratio |")
    _say("|---|---:|---:|---:|---:|")
    for shape in _SHAPES:
        found = {side: [_seconds(*shape, least)] for side, least in _SIDES.items()}
        for _ in range(_ROUNDS):
            for side, least in _SIDES.items():
                found[side].append(_seconds(*shape, least))
        rounds = {side: times[1:] for side, times in found.items()}
        ratios = [a / b for a, b in zip(*rounds.values(), strict=True)]
        low, middle, high = statistics.quantiles(ratios, n=4)
        times = " | ".join(f"{1e6 * statistics.median(each):,.0f}" for each in rounds.values())
        size = shape[0] * shape[1] * shape[2] / 1e6
        name = " x ".join(f"{side:,}" for side in shape)
        _say(f"| {name} | {size:,.1f} | {times} | {middle:.2f} [{low:.2f}, {high:.2f}] |")


if __name__ == "__main__":
    main()
