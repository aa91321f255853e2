"""`python -m tests.benchmarks.kept_gates`: gates that are kept against ones computed again.

One training step of a layer on our kernels, forward and backward, on one thread: with what a
backward pass reads kept by the forward pass, and without. `--vendor` compares the first with
torch's own LSTM.
"""

import argparse
import itertools
import sys
from collections.abc import Callable

import torch

from models.kernels import sequence as sequence_module
from models.kernels.calls import Kind, kept_floats
from models.kernels.sequence import sequence
from models.kernels.structs import CellName
from tests.benchmarks.cpu.machine import described
from tests.benchmarks.cpu.timing import Timing, timed
from tests.models.kernels.cases import FormName, Sizes, random_tensors

CELLS: tuple[CellName, ...] = ("lstm", "gru_reset_before", "gru_reset_after", "rnn")
FORMS: tuple[FormName, ...] = ("dense", "low_rank_diagonal")
SIZES = tuple(
    Sizes(models=1, steps=steps, batch=batch, size=size, inputs=2)
    for size, batch, steps in (
        *((32, 128, 100), (64, 128, 100), (128, 20, 400), (128, 128, 100)),
        (512, 32, 40),
    )
)
RANK = 24
VENDOR_SIZES, VENDOR_BATCHES = (32, 64, 128, 256, 384, 512, 1024), (1, 16, 64, 128)
ROUNDS = 9


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description="Gates kept against computed again.")
    parser.add_argument("--vendor", action="store_true", help="against torch.nn.LSTM")
    vendor = parser.parse_args().vendor
    torch.set_num_threads(1)
    say(*(f"- {line}" for line in described()), "")
    if vendor:
        against_vendor()
    else:
        against_computed_again()


def against_computed_again() -> None:
    """Ratios of times, and what is kept."""
    say("| layer | kept / again | ms | kept, MB |", "|---|---:|---:|---:|")
    sequence_module.LEAST_KEPT_SIZE = 1
    for cell, form, sizes in itertools.product(CELLS, FORMS, SIZES):
        kind = Kind(cell, "tanh", 0.0)
        tensors = random_tensors(cell, form, sizes, rank=RANK)
        floats = kept_floats(kind, tensors)
        if floats == 0:
            continue
        runs = {name: ours(cell, form, sizes, learns=name == "kept") for name in ("again", "kept")}
        time = timed(runs, baseline="again", rounds=ROUNDS)["kept"]
        rank = "" if form == "dense" else f" d{RANK}"
        layer = f"{cell} n{sizes.size}{rank} B{sizes.batch} T{sizes.steps}"
        say(f"| {layer} | {written(time)} | {4e-6 * floats:.1f} |")


def against_vendor() -> None:
    """Ratios of times of a dense LSTM."""
    say("| layer | ours / torch.nn | ms |", "|---|---:|---:|")
    for size, batch in itertools.product(VENDOR_SIZES, VENDOR_BATCHES):
        sizes = Sizes(models=1, steps=6400 // size, batch=batch, size=size, inputs=8)
        runs = {"torch.nn": torchs(sizes), "ours": ours("lstm", "dense", sizes, learns=True)}
        time = timed(runs, baseline="torch.nn", rounds=ROUNDS)["ours"]
        say(f"| n{size} B{batch} T{sizes.steps} | {written(time)} |")


def say(*lines: str) -> None:
    """At once: a table takes minutes."""
    sys.stdout.write("\n".join(lines) + "\n")
    sys.stdout.flush()


def ours(cell: CellName, form: FormName, sizes: Sizes, *, learns: bool) -> Callable[[], object]:
    """A step on our kernels."""
    tensors = random_tensors(cell, form, sizes, rank=RANK)

    def step() -> None:
        states, *_ = sequence(Kind(cell, "tanh", 0.0), tensors, None, keep=True, learns=learns)
        states.sum().backward()

    return step


def torchs(sizes: Sizes) -> Callable[[], object]:
    """A step of torch's LSTM."""
    layer = torch.nn.LSTM(sizes.inputs, sizes.size)
    x = torch.randn(sizes.steps, sizes.batch, sizes.inputs)

    def step() -> None:
        layer(x)[0].sum().backward()

    return step


def written(time: Timing) -> str:
    """The ratio with its quartiles, and the median."""
    return (
        f"{time.ratio:.2f} ({time.ratio_low:.2f} to {time.ratio_high:.2f}) | {time.median_ms:.1f}"
    )


if __name__ == "__main__":
    main()
