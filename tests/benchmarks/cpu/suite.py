"""The whole report of `tests.benchmarks.sequences`."""

import argparse
import os
import sys
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from tests.benchmarks.cpu import cold, report
from tests.benchmarks.cpu.cases import BY_NAME, DEEP, QUICK, SEQUENCES, Case
from tests.benchmarks.cpu.machine import described
from tests.benchmarks.cpu.targets import TARGETS, Figures
from tests.benchmarks.processes import measured, told

_ROUNDS = 9
_MAKINGS = ((128, 16), (512, 16), (128, 128))
_SMALL_PAGES = ("spectral RNN n128 m16+16 B128", "low-rank GRU n128 d24 B128")
_MEMORY = (*_SMALL_PAGES, "spectral RNN n512 m16+16 B20")
_REMEMBERED = ("torch.nn", "ours", "ours, dense baseline", "ours, torch backend")


def main() -> None:
    """Measure and print."""
    arguments = _arguments()
    chosen = [case for case in (*SEQUENCES, *DEEP) if arguments.only in case.name]
    text = (
        _report([QUICK], rounds=2, apart=False)
        if arguments.quick
        else _report(chosen, rounds=arguments.rounds, apart=not arguments.only)
    )
    sys.stdout.write(text)
    if arguments.out is not None:
        arguments.out.write_text(text)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.sequences")
    parser.add_argument("--out", type=Path, help="file that the report is written to as well")
    parser.add_argument("--quick", action="store_true", help="one small case")
    parser.add_argument("--only", default="", help="text in the names of the cases to measure")
    parser.add_argument("--rounds", type=int, default=_ROUNDS, help="how often each is timed")
    return parser.parse_args()


def _report(cases: Sequence[Case], *, rounds: int, apart: bool) -> str:
    """With `apart`, also what is measured beside the cases."""
    machine = described()
    # First, so that what fails here fails early.
    sections = _apart(rounds) if apart else {}
    results = [
        _told_of(case.name, mode, measured("worker", case.name, mode, rounds))
        for case in cases
        for mode in case.modes
    ]
    parts = [
        "# How fast the kernels are",
        f"`python -m tests.benchmarks.sequences`, {datetime.now():%Y-%m-%d}, {rounds} rounds",
        "\n".join(f"- {fact}" for fact in machine),
        report.legend(),
    ]
    figures = Figures(results, sections.pop("makings", []), sections.pop("pace", {}))
    if apart:
        parts += ["## Targets", "\n".join(target.line(figures) for target in TARGETS)]
    if slower := report.slower_than_dense(results):
        parts += ["## Slower than the dense baseline", "\n".join(slower)]
    parts += ["## Cases", report.sequences(results)]
    for title, table in sections.items():
        parts += [f"## {title}", table]
    parts.append(f"Load average when it ended: {os.getloadavg()[0]:.2f}")
    return "\n\n".join(parts) + "\n"


def _apart(rounds: int) -> dict[str, Any]:
    """Tables by title, and the figures behind targets."""
    makings = [
        _told_of(f"n{n} m{m}", "factors", measured("parametrization", n, m, rounds))
        for n, m in _MAKINGS
    ]
    small_pages = [measured("worker", name, "train", 7, huge_pages=False) for name in _SMALL_PAGES]
    pace = cold.throughput()
    seconds = {name: f"{value:.2f} s" for name, value in cold.measured().items()}
    return {
        "makings": makings,
        "pace": pace,
        "Making the matrices": report.parametrizations(makings),
        "Without huge pages (THP_MEM_ALLOC_ENABLE=0)": report.sequences(small_pages),
        "Peak memory of a training step, beyond model and data": report.facts(
            ("case and contestant", "MB"), _memory()
        ),
        "Several at once, wall time, first case": report.facts(
            ("steps per second", "ratio"), {name: f"{value:.2f}" for name, value in pace.items()}
        ),
        "Before the first step": report.facts(("what", "wall time"), seconds),
    }


def _memory() -> dict[str, str]:
    found: dict[str, str] = {}
    for name in _MEMORY:
        assert name in BY_NAME
        for contestant in _REMEMBERED:
            # Huge pages would count what is never touched.
            found[f"{name}: {contestant}"] = told("memory", name, contestant, huge_pages=False)
    return found


def _told_of(name: str, mode: str, result: dict[str, Any]) -> dict[str, Any]:
    """Say on stderr how far it is."""
    sys.stderr.write(f"{datetime.now():%H:%M:%S} {name}, {mode}\n")
    return result


if __name__ == "__main__":
    main()
