"""`python -m tests.benchmarks.predicted_speeds`: studies that measure what is needed, and all.

Each task and seed runs twice in turn, with two slots and trials of few epochs: once with
`throughput.measure` all, once with needed. When a study of the second kind has ended, every other
complete trial is measured too, which tells the front that measuring all would have given, and how
many measurements lie in the intervals that were predicted for them.
"""

import argparse
import statistics
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

from search.documents.objectives import OBJECTIVE_KINDS, USUAL_OBJECTIVES
from search.measuring.devices import device_model
from tests.benchmarks.measuring_share import shapes_of
from tests.service.running import Server, wait_until

SLOTS = 2
_TASKS: Mapping[str, dict[str, Any]] = {
    "digits": {"kind": "digits", "layout": "rows"},
    "addition": {"kind": "addition", "steps": 30},
    "copy": {"kind": "copy"},
}


@dataclass(frozen=True)
class Ran:
    """One study that has ended."""

    id: str
    share: float
    """Of its time that measuring took, from 0 to 1."""
    wall: float
    shapes: int
    """How many were measured."""
    trials: int
    front: frozenset[int]


def run(
    server: Server,
    task: str,
    seed: int,
    measure: Literal["needed", "all"],
    given: argparse.Namespace,
) -> Ran:
    """Run one study to its end."""
    spec = {
        "name": f"{task} {seed} {measure}",
        "task": _TASKS[task],
        "budget": {"trials": given.trials, "epochs": given.epochs},
        "sampler": {"kind": given.sampler},
        "throughput": {"measure": measure},
        "seed": seed,
    }
    study_id = server.submit(spec)
    progress = server.wait(study_id, seconds=3600)["progress"]
    done = [trial for trial in server.trials(study_id) if trial["outcome"] == "complete"]
    return Ran(
        id=study_id,
        share=progress["measuring_share"],
        wall=progress["wall_seconds"],
        shapes=len(shapes_of(server, study_id)),
        trials=len(done),
        front=front_of(server, study_id),
    )


def front_of(server: Server, study_id: str) -> frozenset[int]:
    """The numbers of the trials on a study's front."""
    front = server.get(f"/v1/studies/{study_id}/front")
    return frozenset(point["trial"] for point in front["points"])


def measure_the_rest(server: Server, study_id: str) -> None:
    """Have every complete trial measured that was not."""

    def rest() -> list[int]:
        return [
            trial["number"]
            for trial in server.trials(study_id)
            if trial["outcome"] == "complete" and trial["throughput_kind"] != "measured"
        ]

    for number in rest():
        answer = server.http.post(f"/v1/studies/{study_id}/trials/{number}/measure")
        assert answer.status_code == 202, answer.text
    wait_until(lambda: not rest(), what=f"the rest to be measured: {rest()}", seconds=3600)


def off_by(server: Server, study_id: str) -> list[tuple[bool, float, float]]:
    """Of each predicted trial: whether its measurement lies in the interval, its error, the width.

    Error and half width are relative to the measurement and to the prediction.
    """
    found: list[tuple[bool, float, float]] = []
    for trial in server.trials(study_id):
        predicted, value = trial["predicted"].get("throughput"), trial["values"]["throughput"]
        if predicted is None or value is None:
            continue
        inside = predicted["low"] <= value <= predicted["high"]
        error = abs(predicted["value"] / value - 1)
        found.append((inside, error, predicted["high"] / predicted["value"] - 1))
    return found


def regret(server: Server, study_id: str, missing: frozenset[int]) -> float:
    """By how much the best published point falls short of those that are missing, at the most.

    The largest, over the missing, of the factor in throughput that they lack to be dominated by a
    point that is as good in all else; 0 where none is missing.
    """
    trials = {trial["number"]: trial for trial in server.trials(study_id)}
    others = [kind for name, kind in OBJECTIVE_KINDS.items() if name in USUAL_OBJECTIVES]
    worst = 0.0
    for number in missing:
        lost = trials[number]["values"]
        gaps = [
            lost["throughput"] / one["values"]["throughput"] - 1
            for one in trials.values()
            if one["number"] not in missing
            and one["values"]["throughput"] is not None
            and all(_at_least(one["values"], lost, kind.name) for kind in others)
        ]
        worst = max(worst, min(gaps, default=float("inf")))
    return worst


def _at_least(one: Mapping[str, float], other: Mapping[str, float], name: str) -> bool:
    if name == "throughput":
        return True
    if name == "parameters":
        return one[name] <= other[name]
    return one[name] >= other[name]


def main() -> None:
    """Print a line for each task and seed, then all of a task together."""
    write = sys.stdout.write
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--tasks", nargs="+", choices=[*_TASKS], default=[*_TASKS])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--trials", type=int, default=60)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--sampler", choices=("random", "known_cost", "tpe"), default="random")
    given = parser.parse_args()
    write(f"{datetime.now():%Y-%m-%d} · {device_model('cpu')} · {SLOTS} slots\n\n")
    write(f"{'task':10}{'seed':>5}{'share all':>10}{'needed':>8}{'wall all':>10}{'needed':>8}")
    write(
        f"{'trials':>8}{'shapes':>8}{'needed':>8}{'front':>6}{'missing':>8}{'of':>5}{'factor':>8}"
    )
    write(f"{'inside':>8}{'error':>7}{'width':>7}\n")
    with tempfile.TemporaryDirectory() as name:
        server = Server(Path(name) / "data", workers=SLOTS)
        try:
            server.start()
            for task in given.tasks:
                every: list[tuple[bool, float, float]] = []
                for seed in range(given.seeds):
                    whole = run(server, task, seed, "all", given)
                    lazy = run(server, task, seed, "needed", given)
                    measure_the_rest(server, lazy.id)
                    right = front_of(server, lazy.id)
                    checked = off_by(server, lazy.id)
                    every += checked
                    write(f"{task:10}{seed:>5}{whole.share:>10.1%}{lazy.share:>8.1%}")
                    write(f"{whole.wall:>10.1f}{lazy.wall:>8.1f}{lazy.trials:>8}")
                    write(f"{whole.shapes:>8}{lazy.shapes:>8}{len(lazy.front):>6}")
                    missing = right - lazy.front
                    write(f"{len(missing):>8}{len(right):>5}")
                    write(f"{regret(server, lazy.id, missing):>8.3f}{_summary(checked)}\n")
                    sys.stdout.flush()
                write(f"{task:10}{'all':>5}{' ' * 79}{_summary(every)}\n")
        finally:
            server.close()


def _summary(checked: list[tuple[bool, float, float]]) -> str:
    if not checked:
        return f"{'–':>8}{'–':>7}{'–':>7}"
    inside, error, width = zip(*checked, strict=True)
    return (
        f"{statistics.mean(inside):>8.0%}{statistics.median(error):>7.1%}"
        f"{statistics.median(width):>7.0%}"
    )


if __name__ == "__main__":
    main()
