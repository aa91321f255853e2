"""`python -m tests.benchmarks.capacity`: what a site carries, on paper and under a farm.

First the costs of single calls, then what follows from them, then a real site (PostgreSQL, API
processes, a coordinator) with so many slots on machines that train nothing: predicted against
observed. `--costs` measures the costs alone.
"""

import argparse
import sys
import tempfile
from pathlib import Path

import optuna

from tests.benchmarks.capacity.costs import Costs, measured, table
from tests.benchmarks.capacity.drive import Load, Observed, drive
from tests.benchmarks.capacity.model import Workload, load_of
from tests.conftest import PostgresServer

_EPOCHS = (10.0, 60.0, 300.0)


def capacities(costs: Costs, *, turnover_seconds: float) -> str:
    """How many attempts one process of each kind carries, by how long an epoch is."""
    lines = [
        "| an epoch of | API process | PostgreSQL core | coordinator |",
        "|---|---:|---:|---:|",
    ]
    for seconds in _EPOCHS:
        work = Workload(epoch_seconds=seconds, epochs=20)
        most = load_of(work, costs, turnover_seconds=turnover_seconds).most()
        cells = " | ".join(f"{round(count, -1):.0f}" for count in most.values())
        lines.append(f"| {seconds:g} s | {cells} |")
    return "\n".join(lines)


def compared(load: Load, seen: Observed, costs: Costs) -> str:
    """What the model says of a drive, and what happened."""
    work = Workload(
        epoch_seconds=load.epoch_seconds, epochs=load.epochs, lease_seconds=load.lease_seconds
    )
    predicted = load_of(work, costs, turnover_seconds=0.0)
    ends = seen.rates.get("complete", 0.0)
    lines = [
        f"{load.attempts} slots, epochs of {load.epoch_seconds:g} s, {load.epochs} of them, a "
        f"lease of {load.lease_seconds:g} s, {load.apis} API: filled after "
        f"{seen.filled_after:.0f} s; {seen.attempts:.0f} attempts at work on average over "
        f"{seen.seconds:.0f} s, {seen.peak} at most; {seen.leases_lost} leases lost, "
        f"{seen.faults} calls made again.",
        "",
        "| cores | predicted | observed |",
        "|---|---:|---:|",
        f"| API | {seen.attempts * predicted.api:.2f} | {seen.shares['API']:.2f} |",
        f"| PostgreSQL | {seen.attempts * predicted.database:.2f} | "
        f"{seen.shares['PostgreSQL']:.2f} |",
        f"| coordinator, {ends:.2f} trials/s | | {seen.shares['coordinator']:.2f} |",
        f"| the farm itself | | {seen.shares['farm']:.2f} |",
        "",
        "| call | per second | half within, ms | 99 of 100 within, ms |",
        "|---|---:|---:|---:|",
    ]
    for kind, (half, most) in sorted(seen.latencies.items()):
        lines.append(f"| {kind} | {seen.rates[kind]:.1f} | {1e3 * half:.0f} | {1e3 * most:.0f} |")
    return "\n".join((*lines, *(f"refused: {word}" for word in seen.refused)))


def main() -> None:
    """Measure, predict, drive, compare."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.capacity")
    parser.add_argument("--attempts", type=int, default=1000)
    parser.add_argument("--minutes", type=float, default=3.0)
    parser.add_argument("--epoch-seconds", type=float, default=60.0)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--lease-seconds", type=float, default=60.0)
    parser.add_argument("--apis", type=int, default=2)
    parser.add_argument("--database", choices=("postgresql", "sqlite"), default="postgresql")
    parser.add_argument("--calls", type=int, default=200, help="of each kind, to measure its cost")
    parser.add_argument("--turnover", type=float, default=0.15, help="a coordinator's, in seconds")
    parser.add_argument("--costs", action="store_true", help="measure costs alone")
    given = parser.parse_args()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    load = Load(
        attempts=given.attempts,
        epoch_seconds=given.epoch_seconds,
        epochs=given.epochs,
        lease_seconds=given.lease_seconds,
        apis=given.apis,
    )
    postgres = PostgresServer(Path(tempfile.mkdtemp(prefix="reflectory-postgres-")))
    try:
        costs = measured(postgres, times=given.calls, trials=(50, 200, 1000))
        _print(table(costs))
        _print(capacities(costs, turnover_seconds=given.turnover))
        if not given.costs:
            server = postgres if given.database == "postgresql" else None
            _print(compared(load, drive(load, minutes=given.minutes, postgres=server), costs))
    finally:
        postgres.stop()


def _print(text: str) -> None:
    sys.stdout.write(f"{text}\n\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
