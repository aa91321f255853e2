"""`python -m tests.benchmarks.measuring_share`: how much of a study's time measuring takes.

Runs studies on rows of `digits` and of `mnist`, with everything at its default, on a server of its
own with two slots. `mnist` is looked for where `REFLECTORY_DATA` says; a whole study on it would
take hours, so that each study ends after `--wall-seconds`.
"""

import argparse
import statistics
import sys
import tempfile
from datetime import datetime
from pathlib import Path
from typing import Any

from search.measuring.devices import device_model
from tests.service.running import Server

TASKS = ("digits", "mnist")
SLOTS = 2


def shapes_of(server: Server, study_id: str) -> list[dict[str, Any]]:
    """The throughput measurements of a study, each once."""
    found: dict[int, dict[str, Any]] = {}
    for trial in server.trials(study_id):
        detail = server.get(f"/v1/studies/{study_id}/trials/{trial['number']}")
        if detail["throughput"] is not None:
            found[detail["throughput"]["trial"]] = detail["throughput"]
    return list(found.values())


def row(server: Server, task: str, wall_seconds: float) -> str:
    """Run one study to its end; one line of the table."""
    study_id = server.submit(
        {
            "name": task,
            "task": {"kind": task, "layout": "rows"},
            "budget": {"wall_seconds": wall_seconds},
        }
    )
    progress = server.wait(study_id, seconds=2 * wall_seconds + 300)["progress"]
    shapes = shapes_of(server, study_id)
    rounds = [shape["record"]["rounds"] for shape in shapes]
    attempts = [attempt for trial in server.trials(study_id) for attempt in trial["attempts"]]
    stood = sum(attempt["stood_still_seconds"] for attempt in attempts)
    cells = (
        progress["wall_seconds"],
        100 * progress["measuring_share"],
        statistics.median(shape["seconds"] for shape in shapes),
        statistics.median(rounds),
        100 * stood / (SLOTS * progress["wall_seconds"]),
    )
    counts = progress["trials"]["complete"], progress["epochs_trained"], len(shapes)
    return f"{task:8}{''.join(f'{c:>8}' for c in counts)}{''.join(f'{c:>10.2f}' for c in cells)}"


def main() -> None:
    """Print the table."""
    write = sys.stdout.write
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=TASKS)
    parser.add_argument("--wall-seconds", type=float, default=600.0, help="budget of each study")
    given = parser.parse_args()
    write(f"{datetime.now():%Y-%m-%d} · {device_model('cpu')} · {SLOTS} slots\n\n")
    write(f"{'task':8}{'trials':>8}{'epochs':>8}{'shapes':>8}{'wall s':>10}{'lock %':>10}")
    write(f"{'s/shape':>10}{'rounds':>10}{'stood %':>10}\n")
    with tempfile.TemporaryDirectory() as name:
        server = Server(Path(name) / "data", workers=SLOTS)
        try:
            server.start()
            for task in given.tasks:
                write(row(server, task, given.wall_seconds) + "\n")
                sys.stdout.flush()
        finally:
            server.close()


if __name__ == "__main__":
    main()
