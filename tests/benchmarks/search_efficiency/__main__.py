"""`python -m tests.benchmarks.search_efficiency`: epochs that searches need, against random search.

Replays samplers and stopping rules on the tables of curves beside this file, sequentially and on
asynchronous workers, under harder conditions where some are named. All constants are the defaults
of the specs. Whoever changes them looks at exploration seeds, and never at `ecg5000`, which judges
what came of it; fresh seeds are reported.
"""

import argparse
import datetime
import os
import sys
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

from tests.benchmarks.search_efficiency.contestants import BASELINE, CONTESTANTS
from tests.benchmarks.search_efficiency.report import (
    EARLY,
    FULL_TRAININGS,
    Setting,
    compare,
    heading,
)
from tests.benchmarks.search_efficiency.spaces import PARAMETRIZATIONS, SPACES
from tests.benchmarks.search_efficiency.table import stored_tables

FIRST_SEED = {"fresh": 2000, "exploration": 0}


def main(arguments: Sequence[str]) -> int:
    """Replay and print."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.search_efficiency")
    parser.add_argument("--tables", nargs="+", choices=SPACES, default=list(stored_tables()))
    parser.add_argument("--file", type=Path, help="another file than the table's own")
    parser.add_argument(
        "--slow", choices=PARAMETRIZATIONS, help="the parametrization whose curves start slowly"
    )
    parser.add_argument(
        "--noise", type=float, default=0.0, help="deviation of what is added to each accuracy told"
    )
    parser.add_argument(
        "--infeasible", action="store_true", help="a third of the configurations diverge"
    )
    parser.add_argument(
        "--trials", type=int, default=FULL_TRAININGS, help="random search's full trainings"
    )
    parser.add_argument("--seeds", choices=sorted(FIRST_SEED), default="fresh")
    parser.add_argument("--count", type=int, default=24, help="how many seeds")
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 4])
    parser.add_argument("--only", nargs="+", choices=CONTESTANTS, default=list(CONTESTANTS))
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args(arguments)
    missing = [name for name in options.tables if not (options.file or SPACES[name].file).exists()]
    if missing or not options.tables:
        parser.error(
            f"there is no table of {', '.join(missing or SPACES)}; "
            "python -m tests.benchmarks.search_efficiency.training trains it"
        )
    for name in options.tables:
        if options.slow and options.slow not in SPACES[name].parametrizations:
            parser.error(f"{name} has no {options.slow} that could start slowly")
    seeds = range(FIRST_SEED[options.seeds], FIRST_SEED[options.seeds] + options.count)
    write = sys.stdout.write
    packages = ", ".join(f"{name} {version(name)}" for name in ("optuna", "numpy", "moocore"))
    write(f"{datetime.date.today()}, seeds {seeds[0]}-{seeds[-1]} ({options.seeds}), {packages}.\n")
    for name in options.tables:
        for workers in options.workers:
            setting = Setting(
                name,
                workers,
                slow=options.slow,
                path=options.file,
                noise=options.noise,
                infeasible=options.infeasible,
                full_trainings=options.trials,
            )
            comparison = compare(setting, options.only, seeds, processes=options.processes)
            write(f"\n## {setting}\n\n")
            write("\n".join(heading(setting, comparison.targets)) + "\n")
            write("\n" + "\n".join(comparison.lines()) + "\n")
            write("\n" + "\n".join(comparison.pairs()) + "\n")
            sys.stdout.flush()
    parts = " and ".join(f"1/{part}" for part in EARLY)
    write("\n" + _READING.format(trainings=options.trials, baseline=BASELINE, parts=parts))
    return 0


_READING = """\
Epochs (and simulated time) until the fully trained trials have the hypervolume that {baseline}
search has in the median after all its epochs, those of {trainings} full trainings, as shares of
them: median [quartiles] over the seeds. A miss has not reached it after as many epochs. At {parts}:
the median hypervolume after that part of the epochs, as a share of the target. M1 counts accuracy
from 0.8, M2 the logarithm of the error from 0.5; parameters and throughput are logarithmic in both.
Accuracies are the table's own, whatever noise a search was told.
Pairs: seeds on which the first needed fewer epochs : more epochs, with the p of Wilcoxon's
signed-rank test, a miss counting as the whole budget.
"""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
