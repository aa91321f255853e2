"""What commands cost before they do anything: `python -m tests.benchmarks.cli_cost`.

Each command is run in turn with the others and with a bare Python, several rounds; shown are
medians of the processor's seconds (user and system) and of the wall's, with the middle half of the
rounds.
"""

import argparse
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence

_REFLECTORY = [sys.executable, "-m", "service.cli"]
_NOBODY = "http://127.0.0.1:9"
COMMANDS = {
    "python -c pass": [sys.executable, "-c", "pass"],
    "reflectory --help": [*_REFLECTORY, "--help"],
    "reflectory list --help": [*_REFLECTORY, "list", "--help"],
    "reflectory list, no server": [*_REFLECTORY, "list", "--server", _NOBODY],
}


def _cost(command: Sequence[str]) -> tuple[float, float]:
    before, begun = os.times(), time.perf_counter()
    subprocess.run(command, capture_output=True, check=False)
    wall, after = time.perf_counter() - begun, os.times()
    used = after.children_user + after.children_system
    return used - before.children_user - before.children_system, wall


def _shown(values: Sequence[float]) -> str:
    low, middle, high = statistics.quantiles(values, n=4)
    return f"{middle:.2f} [{low:.2f}, {high:.2f}]"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=9)
    rounds = parser.parse_args().rounds
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in COMMANDS}
    for _ in range(rounds):
        for name, command in COMMANDS.items():
            found[name].append(_cost(command))
    lines = ["| command | processor, s | wall, s |", "|---|---|---|"]
    for name, costs in found.items():
        used, wall = zip(*costs, strict=True)
        lines.append(f"| `{name}` | {_shown(used)} | {_shown(wall)} |")
    sys.stdout.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
