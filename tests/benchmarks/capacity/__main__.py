"""`python -m tests.benchmarks.capacity`: what a site carries, under machines that train nothing.

A real site (PostgreSQL or SQLite, API processes, a coordinator) with so many slots, whose agents
speak to it as real ones do. How many slots have work, what each kind of process takes for it, and
how long calls wait.
"""

import argparse
import sys
import tempfile
from pathlib import Path

import optuna

from tests.benchmarks.capacity.drive import Load, Observed, drive
from tests.conftest import PostgresServer


def told(load: Load, seen: Observed) -> str:
    """What happened, as tables."""
    lines = [
        f"{load.attempts} slots, {load.slots_per_machine} per machine, "
        f"epochs of {load.epoch_seconds:g} s, {load.epochs} of them, a "
        f"lease of {load.lease_seconds:g} s, {load.apis} API, {load.studies} studies: filled after "
        f"{seen.filled_after:.0f} s; {seen.attempts / load.attempts:.1%} of the slots had work "
        f"over {seen.seconds:.0f} s; {seen.leases_lost} leases lost, "
        f"{seen.faults} calls made again; {seen.trials_per_second:.2f} trials/s; load average "
        f"{seen.machine_load:.1f}.",
        "",
        "| process | cores | ms per trial | ms per sync | MiB |",
        "|---|---:|---:|---:|---:|",
        *(_row(name, seen) for name in ("API", "PostgreSQL", "coordinator", "farm")),
        "",
        "| call | per second | half within, ms | 99 of 100 within, ms |",
        "|---|---:|---:|---:|",
    ]
    for kind, (half, most) in sorted(seen.latencies.items()):
        lines.append(f"| {kind} | {seen.rates[kind]:.1f} | {1e3 * half:.0f} | {1e3 * most:.0f} |")
    return "\n".join((*lines, *(f"refused: {word}" for word in seen.refused)))


def _row(name: str, seen: Observed) -> str:
    cores = seen.shares[name]
    trial, sync = (
        f"{1e3 * cores / rate:.2f}" if rate else ""
        for rate in (seen.trials_per_second, seen.rates.get("sync", 0.0))
    )
    memory = f"{seen.memory[name]:.0f}" if name in seen.memory else ""
    return f"| {name} | {cores:.2f} | {trial} | {sync} | {memory} |"


def main() -> None:
    """Drive a site and say what it carried."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.capacity")
    parser.add_argument("--attempts", type=int, default=1000)
    parser.add_argument("--slots-per-machine", type=int, default=25)
    parser.add_argument("--minutes", type=float, default=3.0)
    parser.add_argument("--epoch-seconds", type=float, default=60.0)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--lease-seconds", type=float, default=60.0)
    parser.add_argument("--apis", type=int, default=1)
    parser.add_argument("--studies", type=int, default=4)
    parser.add_argument("--fill-seconds", type=float, default=1500.0)
    parser.add_argument("--database", choices=("postgresql", "sqlite"), default="postgresql")
    given = parser.parse_args()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    load = Load(
        attempts=given.attempts,
        slots_per_machine=given.slots_per_machine,
        epoch_seconds=given.epoch_seconds,
        epochs=given.epochs,
        lease_seconds=given.lease_seconds,
        apis=given.apis,
        studies=given.studies,
        fill_seconds=given.fill_seconds,
    )
    postgres = PostgresServer(Path(tempfile.mkdtemp(prefix="reflectory-postgres-")))
    try:
        server = postgres if given.database == "postgresql" else None
        sys.stdout.write(f"{told(load, drive(load, minutes=given.minutes, postgres=server))}\n")
    finally:
        postgres.stop()


if __name__ == "__main__":
    main()
