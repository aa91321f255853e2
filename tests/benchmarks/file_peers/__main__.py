"""`python -m tests.benchmarks.file_peers`: structure and bits beside dense int8 and int4.

Everything is compared at equal bytes of the ONNX file, of 2 to 64 KB. A GRU of width 128 is trained
on rows of images; networks of all kinds are made of it, with the same epochs, optimizer, learning
rates to choose from, order of images and teacher. The tuning seed chooses configurations and rates
by validation; other seeds judge them.

`REFLECTORY_DATA` names the folder of MNIST's files. Runs are kept in `--out` and not trained again;
`--report` prints the tables of what is there.
"""

import argparse
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch

from tests.benchmarks.file_peers.after_training import judge_libraries
from tests.benchmarks.file_peers.runs import Run, Runs
from tests.benchmarks.file_peers.setups import SETUPS, SIZES, Setup
from tests.benchmarks.file_peers.stages import judge, tune
from tests.benchmarks.file_peers.verdict import report

RUNS = Path(__file__).parent / "runs.jsonl"


def main(arguments: Sequence[str]) -> int:
    """Train what is missing, and print the tables."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks.file_peers",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("tasks", nargs="*", choices=[[], *SETUPS], help="all")
    parser.add_argument("--seeds", type=int, nargs="+", default=range(1, 7), help="that judge")
    parser.add_argument("--sizes", type=int, nargs="+", choices=SIZES, default=list(SIZES))
    parser.add_argument(
        "--like", choices=SETUPS, help="a task: only families and bits left by its tuning are tried"
    )
    parser.add_argument(
        "--libraries", action="store_true", help="then those that quantize without training"
    )
    parser.add_argument("--out", type=Path, default=RUNS, help="the runs, a line of JSON each")
    parser.add_argument("--report", action="store_true", help="print what is there, train nothing")
    options = parser.parse_args(arguments)
    runs = Runs(options.out)
    if not options.report:
        # Numbers follow from seeds on one thread alone.
        torch.set_num_threads(1)
        for name in options.tasks or list(SETUPS):
            for run in _train(runs, SETUPS[name], options):
                test = "" if run.test is None else f", test {run.test:.4f}"
                sys.stderr.write(
                    f"{run.task} {run.size} KB {run.stage} seed {run.seed} rate {run.rate:g} "
                    f"{run.candidate.camp} width {run.width} count {run.count}: {run.bytes} bytes, "
                    f"validation {run.validation:.4f}{test}, {run.seconds:.1f} s\n"
                )
                sys.stderr.flush()
    sys.stdout.write(report(runs))
    return 0


def _train(runs: Runs, setup: Setup, options: argparse.Namespace) -> Iterator[Run]:
    yield from tune(runs, setup, options.sizes, like=options.like)
    for seed in options.seeds:
        yield from judge(runs, setup, seed, options.sizes)
    for seed in options.seeds if options.libraries else ():
        yield from judge_libraries(runs, setup, seed, options.sizes)


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    sys.exit(main(sys.argv[1:]))
