"""What storing the state takes of a large network's training: `python -m tests.benchmarks.saving`.

A study of one MLP, of `--units` a layer, trains on a server of its own; shown are its epochs per
minute. With `--before FOLDER` each round also does so with another checkout, the two in turn, with
the same interpreter and packages.
"""

import argparse
import os
import platform
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from datetime import datetime
from pathlib import Path

from tests.benchmarks.start_cost import answering, serving

_HERE = Path(__file__).parents[2]
_EPOCHS = 100_000
_BYTES_PER_PARAMETER = 4 * 3 * 2
"""Of a state: it and Adam's two moments, as they are and as they were at the best epoch."""


def _spec(units: int) -> dict[str, object]:
    return {
        "task": {"kind": "digits"},
        "architectures": ["mlp"],
        "parametrizations": ["dense"],
        "space": {"hidden_size": units, "mlp.layers": 3, "training.batch_size": 64},
        "objectives": ["quality"],
        "sampler": {"kind": "random"},
        "budget": {"trials": 1, "epochs": _EPOCHS},
    }


def _measured(checkout: Path, folder: Path, *, units: int, seconds: float) -> tuple[int, float]:
    """Parameters, and epochs per minute from the end of the first one."""
    with serving(checkout, folder, 1):
        client = answering(folder)
        answer = client.post("/v1/studies", json=_spec(units))
        answer.raise_for_status()
        trial = f"/v1/studies/{answer.json()['id']}/trials/0"

        def epochs() -> int:
            found = client.get(trial)
            return found.json()["epochs_trained"] if found.status_code == 200 else 0

        while not (first := epochs()):
            time.sleep(0.2)
        since = time.perf_counter()
        time.sleep(seconds)
        trained, passed = epochs() - first, time.perf_counter() - since
        return client.get(trial).json()["values"]["parameters"], 60 * trained / passed


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--before", type=Path, help="folder of another checkout")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--units", type=int, nargs="+", default=[512, 2048])
    parser.add_argument("--seconds", type=float, default=60.0)
    given = parser.parse_args()
    checkouts = {"before": given.before.resolve()} if given.before else {}
    checkouts["this checkout"] = _HERE
    found: dict[int, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    parameters: dict[int, int] = {}
    for _ in range(given.rounds):
        for units in given.units:
            for name, checkout in checkouts.items():
                with tempfile.TemporaryDirectory(prefix="saving-") as folder:
                    parameters[units], rate = _measured(
                        checkout, Path(folder, "data"), units=units, seconds=given.seconds
                    )
                found[units][name].append(rate)
    lines = [
        f"{datetime.now():%Y-%m-%d} · {platform.machine()}, {os.cpu_count()} cores · "
        f"{given.rounds} rounds · epochs per minute, median [least, most]",
        "",
        f"| units | parameters | MB stored, about | {' | '.join(checkouts)} |",
        f"|---:|---:|---:|{'---:|' * len(checkouts)}",
    ]
    for units, rates in found.items():
        stored = _BYTES_PER_PARAMETER * parameters[units] / 1e6
        cells = (
            f"{statistics.median(rates[name]):.1f} [{min(rates[name]):.1f}, {max(rates[name]):.1f}]"
            for name in checkouts
        )
        lines.append(f"| {units} | {parameters[units]:,} | {stored:.0f} | {' | '.join(cells)} |")
    sys.stdout.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
