"""`python -m tests.benchmarks.showcase`: trained torch.nn networks, compressed on rows of images.

An `nn.GRU` and an `nn.LSTM` of each size are trained on MNIST's rows (`--task digits`: on the
digits that come with scikit-learn), compressed to every member, and trained on with the original's
answers. Of a network's members the document shows the one with the fewest parameters whose
validation accuracy is within noise of the original's.

Results are kept in `deploy/docs/benchmarks/showcase.json` after each network, and what is there is
not trained again. `--tables` writes the tables of `README.md` and `deploy/docs/benchmarks/
showcase.md` from it, and trains nothing. `REFLECTORY_DATA` names the folder of MNIST's files.
"""

import argparse
import os
import sys
from collections.abc import Sequence
from datetime import date

import torch

from tests.benchmarks.cpu.machine import described
from tests.benchmarks.showcase import results, tables
from tests.benchmarks.showcase.networks import (
    CELLS,
    ORIGINAL,
    Effort,
    data,
    members,
    runs,
    spec_of,
)
from tests.benchmarks.showcase.speed import measured


def main(arguments: Sequence[str]) -> int:
    """Train what is missing, and write the tables."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks.showcase",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--task", choices=("mnist", "digits"), default="mnist")
    parser.add_argument("--sizes", type=int, nargs="+", default=[512, 256, 128, 64])
    parser.add_argument("--cells", nargs="+", choices=CELLS, default=list(CELLS))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--samples", type=int, default=54_000, help="of the training split")
    parser.add_argument("--epochs", type=int, default=10, help="of the original")
    parser.add_argument("--fine-tuning", type=int, default=6, help="epochs after compression")
    parser.add_argument("--rounds", type=int, default=31, help="of each timing")
    parser.add_argument("--tables", action="store_true", help="write the tables, train nothing")
    options = parser.parse_args(arguments)
    if not options.tables:
        # Numbers follow from seeds on one thread alone.
        torch.set_num_threads(1)
        _measure(options)
    tables.write(results.load())
    return 0


def _measure(options: argparse.Namespace) -> None:
    effort = Effort(samples=options.samples, epochs=options.epochs, fine_tuning=options.fine_tuning)
    found = results.begun(
        task=options.task, effort=effort, day=f"{date.today()}", machine=described()
    )
    splits = data(options.task, options.samples)
    for size in options.sizes:
        for cell in options.cells:
            spec = spec_of(cell, size, splits)
            for form, parametrization in members(size).items():
                if not found.has_speed(cell, size, form):
                    target = spec.model_copy(update={"parametrization": parametrization})
                    found.add_speed(cell, size, form, *measured(target, rounds=options.rounds))
            for seed in range(options.seeds):
                if found.has_run(cell, size, ORIGINAL, seed):
                    continue
                made = [run for run, _ in runs(cell, size, splits, effort, seed)]
                found.add_runs(made)
                for run in made:
                    sys.stderr.write(
                        f"{cell} {size} seed {seed} {run.form}: {run.parameters:,} parameters, "
                        f"validation {run.validation:.4f}, test {run.test:.4f}\n"
                    )
            found.store()


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    sys.exit(main(sys.argv[1:]))
