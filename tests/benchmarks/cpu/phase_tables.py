"""The tables of `tests.benchmarks.phases`."""

import argparse
import os
import sys
from datetime import datetime
from typing import Any

from tests.benchmarks.cpu.cases import DEEP, QUICK, SEQUENCES
from tests.benchmarks.cpu.machine import described
from tests.benchmarks.processes import measured

_ROUNDS = 9
_NAMED = "spectral|low-rank"
_LEGEND = (
    "Processor time on one thread, medians of rounds in which all phases of a case take turns. A "
    "training step makes factors, runs forward and backward, and steps with Adam as trials do. "
    "What the kernels were asked for is asked again in parts: a backward pass without gradients of "
    "weights, then with them. The floor of a phase is its products at the measured peak and its "
    "tanh; of the optimizer, its bytes as memory is copied, which caches beat. `GB/s`: states, and "
    "weights once in each step, wherever they are kept. Inference has its factors kept."
)
_HEAD = (
    "| case | phase | ms | of the step | floor ms | of its floor | GFLOP/s | GB/s |\n"
    "|---|---|---:|---:|---:|---:|---:|---:|"
)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.phases")
    parser.add_argument("--quick", action="store_true", help="one small case")
    parser.add_argument(
        "--only", default=_NAMED, help="texts in the names of the cases to measure, parted by |"
    )
    parser.add_argument("--rounds", type=int, default=_ROUNDS, help="how often each is timed")
    arguments = parser.parse_args()
    texts = arguments.only.split("|")
    chosen = [c for c in (*SEQUENCES, *DEEP) if any(text in c.name for text in texts)]
    rounds = 2 if arguments.quick else arguments.rounds
    cases = [QUICK] if arguments.quick else chosen
    machine = described()
    results = [measured("phases", case.name, rounds) for case in cases]
    text = "\n\n".join(
        [
            "# Where the time goes",
            f"`python -m tests.benchmarks.phases`, {datetime.now():%Y-%m-%d}, {rounds} rounds",
            "\n".join(f"- {fact}" for fact in machine),
            _LEGEND,
            "\n".join([_HEAD, *(line for result in results for line in _lines(result))]),
            f"Load average when it ended: {os.getloadavg()[0]:.2f}\n",
        ]
    )
    sys.stdout.write(text)


def _lines(result: dict[str, Any]) -> list[str]:
    if "failed" in result:
        return [f"| {result['case']} | failed: {result['failed']} |||||||"]
    return [
        f"| {'' if index else result['case']} | {row['name']} | {row['ms']:.3g} | "
        f"{_percent(row['share'])} | {_number(row['floor_ms'])} | {_percent(row['reached'])} | "
        f"{_number(row['gflops'])} | {_number(row['gigabytes'])} |"
        for index, row in enumerate(result["rows"])
    ]


def _percent(value: float | None) -> str:
    return f"{value:.0%}" if value else "–"


def _number(value: float | None) -> str:
    return f"{value:.3g}" if value else "–"


if __name__ == "__main__":
    main()
