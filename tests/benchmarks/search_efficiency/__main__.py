"""`python -m tests.benchmarks.search_efficiency`: epochs that searches need, against random search.

Replays samplers and stopping rules on the table of curves beside this file, sequentially and on
four asynchronous workers. All constants are the defaults of the specs, which were chosen before
this table was trained. Whoever changes them looks at exploration seeds; fresh ones are reported.
"""

import argparse
import datetime
import os
import sys
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

from tests.benchmarks.search_efficiency.contestants import BASELINE, CONTESTANTS
from tests.benchmarks.search_efficiency.report import Setting, compare, heading
from tests.benchmarks.search_efficiency.table import FILE

FIRST_SEED = {"fresh": 2000, "exploration": 0}


def main(arguments: Sequence[str]) -> int:
    """Replay and print."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.search_efficiency")
    parser.add_argument("--table", type=Path, default=FILE)
    parser.add_argument("--seeds", choices=sorted(FIRST_SEED), default="fresh")
    parser.add_argument("--count", type=int, default=24, help="how many seeds")
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 4])
    parser.add_argument("--only", nargs="+", choices=CONTESTANTS, default=list(CONTESTANTS))
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args(arguments)
    if not options.table.exists():
        parser.error(
            f"{options.table} is not there; "
            "python -m tests.benchmarks.search_efficiency.table trains it"
        )
    seeds = range(FIRST_SEED[options.seeds], FIRST_SEED[options.seeds] + options.count)
    write = sys.stdout.write
    write("# Epochs that searches need\n\n")
    write(f"`python -m tests.benchmarks.search_efficiency`, {datetime.date.today()}, ")
    write(f"seeds {seeds[0]}-{seeds[-1]} ({options.seeds}), ")
    packages = ", ".join(f"{name} {version(name)}" for name in ("optuna", "numpy", "moocore"))
    write(f"{packages}.\n")
    for workers in options.workers:
        comparison = compare(
            Setting(options.table, workers), options.only, seeds, processes=options.processes
        )
        if workers == options.workers[0]:
            write("\n" + "\n".join(heading(options.table, comparison.targets)) + "\n\n")
            write(_READING.format(budget=comparison.setting.budget, baseline=BASELINE))
        write(f"\n## {workers} worker{'s, asynchronous' if workers > 1 else ''}\n\n")
        write("\n".join(comparison.lines()) + "\n")
    return 0


_READING = """\
Epochs (and simulated time) until the fully trained trials have the hypervolume that random search
has in the median after {budget} epochs, as shares of that search's: median [quartiles] over
the seeds. A miss has not reached it after {budget} epochs. M1 counts accuracy from 0.8, M2 the
logarithm of the error from 0.5; parameters and throughput are logarithmic in both.
"""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
