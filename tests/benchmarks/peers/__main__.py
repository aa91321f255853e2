"""`python -m tests.benchmarks.peers`: conversions beside what people use today, alike in numbers.

A network of plain torch layers is trained; every contestant makes of it one with at most a share of
the numbers in its recurrent (or hidden) matrices and trains it on, with the same epochs, optimizer,
learning rates to choose from by validation, order of samples and teacher: half of the loss is the
distance from the original's softened answers, for everyone. Small dense networks start from nothing
and get the original's epochs as well. The extra `peers` has the libraries that take part.

`REFLECTORY_DATA` names the folder of MNIST's and the UCR archive's files. Runs are kept in `--out`
and not trained again; `--report` prints the tables of what is there.
"""

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import torch

from tests.benchmarks.peers import rivals
from tests.benchmarks.peers.report import report
from tests.benchmarks.peers.runs import CONTESTANTS, Runs, train_all
from tests.benchmarks.peers.settings import SETTINGS

RUNS = Path(__file__).parent / "runs.jsonl"


def main(arguments: Sequence[str]) -> int:
    """Train what is missing, and print the tables."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks.peers",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "settings", nargs="*", choices=[[], *SETTINGS], help="all but permuted-lstm"
    )
    parser.add_argument("--shares", type=float, nargs="+", default=[0.1])
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--contestants", nargs="+", choices=CONTESTANTS, default=list(CONTESTANTS))
    parser.add_argument("--out", type=Path, default=RUNS, help="the runs, a line of JSON each")
    parser.add_argument("--report", action="store_true", help="print what is there, train nothing")
    options = parser.parse_args(arguments)
    runs = Runs(options.out)
    names = [name for name in options.contestants if rivals.is_installed(name)]
    for name in sorted(set(options.contestants) - set(names)):
        sys.stderr.write(f"{name} takes no part: the extra `peers` is not installed\n")
    if not options.report:
        # Numbers follow from seeds on one thread alone.
        torch.set_num_threads(1)
        for name in options.settings or [name for name in SETTINGS if name != "permuted-lstm"]:
            for seed in range(options.seeds):
                for share in options.shares:
                    for run in train_all(runs, SETTINGS[name], share, seed, names):
                        sys.stderr.write(
                            f"{run.setting} {run.share:g} seed {run.seed} rate {run.rate:g} "
                            f"{run.contestant} ({run.what}): {run.numbers} of {run.parameters}, "
                            f"start {run.at_start:.4f}, validation {run.validation:.4f}, "
                            f"test {run.test:.4f} (epoch {run.epoch}), {run.seconds:.0f} s\n"
                        )
                        sys.stderr.flush()
    sys.stdout.write(report(runs))
    return 0


if __name__ == "__main__":
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    sys.exit(main(sys.argv[1:]))
