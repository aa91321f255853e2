"""`python -m tests.benchmarks.versions --before FOLDER`: this checkout against another one.

FOLDER is a checkout of an earlier version whose benchmark has the same cases. A process of each
runs the same step in turn, so that whatever slows the machine down slows both. `--only TEXT`
chooses cases, `--out FILE` writes the table too.
"""

import argparse
import statistics
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from tests.benchmarks.cpu.cases import DEEP, QUICK, SEQUENCES, Case, Mode
from tests.benchmarks.cpu.floor import least_ms
from tests.benchmarks.cpu.machine import described, measured_peak
from tests.benchmarks.processes import environment

_HERE = Path(__file__).parents[2]
_PAIRS = 3
"""Of processes: where the system puts a process's memory may cost it more than a change does."""
_ROUNDS = 7
"""For each pair."""
_ROUND_SECONDS = 0.04
_WORSE = 1.03

# Runs in either checkout, and so uses only what both have.
_SERVER = """
import gc, sys, time
import torch
from tests.benchmarks.cpu.cases import BY_NAME
from tests.benchmarks.cpu.contestant import OURS
from tests.benchmarks.cpu.worker import factories
torch.set_num_threads(1)
name, mode = sys.argv[1:]
step = factories(BY_NAME[name], mode)[OURS]().run
step(), step()
gc.collect()
gc.disable()
for line in iter(sys.stdin.readline, ""):
    before = time.process_time()
    for _ in range(int(line)):
        step()
    print(time.process_time() - before, flush=True)
"""


@dataclass(frozen=True)
class Compared:
    """One case, in both checkouts."""

    before_ms: float
    now_ms: float
    quartiles: tuple[float, float, float]
    """of the rounds' ratios, now over before"""


class _Version:
    """A checkout's process, which runs a case's step as often as it is asked to."""

    def __init__(self, folder: Path, case: Case, mode: Mode) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", _SERVER, case.name, mode],
            cwd=folder,
            env=environment(huge_pages=True) | {"PYTHONPATH": str(folder)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> "_Version":
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate()

    def seconds(self, steps: int) -> float:
        """Processor time of so many steps.

        Raises:
            RuntimeError: the process has ended.
        """
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(steps, file=self._process.stdin, flush=True)
        said = self._process.stdout.readline()
        if not said:
            raise RuntimeError(f"the process ended with status {self._process.wait()}")
        return float(said)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.versions")
    parser.add_argument("--before", type=Path, required=True, help="checkout to compare with")
    parser.add_argument("--only", default="", help="text in the names of the cases to measure")
    parser.add_argument("--out", type=Path, help="file that the table is written to as well")
    parser.add_argument("--quick", action="store_true", help="one small case")
    parser.add_argument("--cpu", action="store_true", help="it is the CPU that is measured anyway")
    arguments = parser.parse_args()
    cases = [case for case in (*SEQUENCES, *DEEP) if arguments.only in case.name]
    text = "\n".join(_report(arguments.before, [QUICK] if arguments.quick else cases)) + "\n"
    sys.stdout.write(text)
    if arguments.out is not None:
        arguments.out.write_text(text)


def _report(before: Path, cases: list[Case]) -> list[str]:
    peak = measured_peak()
    lines = [
        "# This version against an earlier one",
        "",
        *(f"- {fact}" for fact in (f"{datetime.now():%Y-%m-%d}", *described())),
        "",
        f"`{_commit(before)}` and `{_commit(_HERE)}`, by `python -m tests.benchmarks.versions`: "
        "processor time of one step on one thread, each version in a process of its own, in turn: "
        f"{_PAIRS} pairs of processes with {_ROUNDS} rounds each. The ratio is the median of the "
        "rounds' ratios with their quartiles. The floor is this version's. A ratio whose lower "
        f"quartile is above {_WORSE} is bold.",
        "",
        "| case | before, ms | now, ms | now / before | share of the floor: before | now |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    for case in cases:
        for mode in case.modes:
            found = compared(before, case, mode, pairs=1 if case is QUICK else _PAIRS)
            floor = least_ms(case, mode, peak) if peak else float("nan")
            lines.append(f"| {case.name}, {mode} | {_row(found, floor)} |")
    return lines


def compared(before: Path, case: Case, mode: Mode, *, pairs: int) -> Compared:
    """A step's times in both checkouts, round by round in changing order."""
    times = [one for _ in range(pairs) for one in _rounds(before, case, mode)]
    low, middle, high = statistics.quantiles((b / a for a, b in times), n=4, method="inclusive")
    before_ms, now_ms = (1e3 * statistics.median(side) for side in zip(*times, strict=True))
    return Compared(before_ms, now_ms, (low, middle, high))


def _rounds(before: Path, case: Case, mode: Mode) -> Iterator[tuple[float, float]]:
    """Seconds of a step, before and now, by one pair of processes."""
    with ExitStack() as stack:
        earlier, now = (
            stack.enter_context(_Version(folder, case, mode)) for folder in (before, _HERE)
        )
        steps = max(1, round(_ROUND_SECONDS / max(earlier.seconds(1), 1e-5)))
        for number in range(_ROUNDS):
            if number % 2:
                second = now.seconds(steps)
                first = earlier.seconds(steps)
            else:
                first = earlier.seconds(steps)
                second = now.seconds(steps)
            yield first / steps, second / steps


def _row(found: Compared, floor_ms: float) -> str:
    low, middle, high = found.quartiles
    ratio = f"**{middle:.2f}**" if low > _WORSE else f"{middle:.2f}"
    shares = f"{floor_ms / found.before_ms:.0%} | {floor_ms / found.now_ms:.0%}"
    times = f"{found.before_ms:.3g} | {found.now_ms:.3g}"
    return f"{times} | {ratio} [{low:.2f}, {high:.2f}] | {shares}"


def _commit(folder: Path) -> str:
    asked = ["git", "-C", str(folder), "describe", "--always", "--dirty"]
    run = subprocess.run(asked, capture_output=True, text=True, check=False)
    return run.stdout.strip() or folder.name


if __name__ == "__main__":
    main()
