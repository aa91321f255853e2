"""What it saves to train trials in the same calls: `python -m tests.benchmarks.stacks`.

Training: eight trials of one size with seeds and learning rates of their own, on one thread, in
one process: all in one call, in the width that is chosen there (`auto`), and one after the other as
they are trained alone. The three take turns within each round; told are medians of the rounds'
ratios, above 1 where a stack is faster.

Studies: whole studies on a real server with two slots, once with `resources.stack` `auto` and once
with 1, in turn. Trials per hour are those that trained, over the time from the
study's begin to its end; hypervolume is the study's own, and epochs are those that it trained.
`--data` names the folder with MNIST's files, without which its rows are left out.
"""

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import torch
from pydantic import TypeAdapter

from models.model import ModelSpec
from search.tasks import AnyTask, DataSources, Splits
from search.training.jobs import EpochReport, TrainJob, Verdict
from search.training.stacks import Entry, TrainingResult, train_stack
from search.training.stacks.widths import WidthPolicy
from search.training.trial_spec import TrainingSpec, TrialSpec
from tests.benchmarks.live_study import write_images
from tests.service.running import Server

_MEMBERS = 8
_DIGITS: Mapping[str, Any] = {"kind": "digits", "layout": "rows"}
_MNIST: Mapping[str, Any] = {"kind": "mnist", "layout": "rows", "train_samples": 1500}
_CASES: Sequence[tuple[str, str, int, Mapping[str, Any]]] = (
    ("digits", "rnn", 32, {"kind": "dense"}),
    ("digits", "rnn", 32, {"kind": "householder_svd", "m1": 8, "m2": 8}),
    ("digits", "rnn", 64, {"kind": "low_rank_diagonal", "d": 8}),
    ("digits", "gru", 32, {"kind": "dense"}),
    ("digits", "gru", 64, {"kind": "low_rank_diagonal", "d": 8}),
    ("digits", "lstm", 32, {"kind": "low_rank", "d": 8}),
    ("digits", "gru", 128, {"kind": "dense"}),
    ("digits", "mlp", 64, {"kind": "householder_svd", "m1": 8, "m2": 8}),
    ("digits", "highway", 64, {"kind": "dense"}),
    ("mnist", "rnn", 32, {"kind": "low_rank_diagonal", "d": 8}),
    ("mnist", "rnn", 64, {"kind": "dense"}),
    ("mnist", "gru", 64, {"kind": "low_rank_diagonal", "d": 8}),
    ("mnist", "gru", 128, {"kind": "dense"}),
)
_STUDIES: Mapping[str, Mapping[str, Any]] = {
    "digits, the default study": {"task": {"kind": "digits"}},
    "digits, 8 more seeds of each point of the front": {
        "task": {"kind": "digits"},
        "sampler": {"kind": "random"},
        "budget": {"trials": 6, "epochs": 10},
        "confirm": 8,
    },
    "rows of MNIST, n up to 64": {
        "task": _MNIST,
        "space": {"hidden_size": {"low": 16, "high": 64, "step": 8}},
        "budget": {"trials": 40, "epochs": 5},
    },
}


class _Hooks:
    """Trials that are all there, and that nobody listens to."""

    stood_still_seconds = 0.0
    leaves = False

    def __init__(self, jobs: Sequence[TrainJob]) -> None:
        self._entries: Sequence[Entry] = [Entry(job, self) for job in jobs]

    def batch(self) -> nullcontext[None]:
        return nullcontext()

    def newcomers(self) -> Sequence[Entry]:
        entries, self._entries = self._entries, ()
        return entries

    def ended(self, entry: Entry, result: TrainingResult | Exception) -> None:
        del entry
        if isinstance(result, Exception):
            raise result

    def say_epoch(self, report: EpochReport) -> None:
        del report

    def hear_verdict(self) -> Verdict:
        return Verdict(lease_seconds=1)

    def save(self, resume: bytes) -> None:
        del resume


def _jobs(task: AnyTask, architecture: str, n: int, family: Mapping[str, Any]) -> list[TrainJob]:
    layers = {"layers": 2} if architecture in ("mlp", "highway") else {}
    model = ModelSpec.model_validate(
        {
            "architecture": {"kind": architecture, "hidden_size": n, **layers},
            "parametrization": family,
            "signature": task.signature(),
        }
    )
    return [
        TrainJob(
            task=task,
            trial=TrialSpec(
                model=model,
                training=TrainingSpec(learning_rate=1e-3 * (1 + seed)),
                seed=seed,
            ),
            number=seed,
            epochs=2,
            checkpoint_seconds=1e9,
        )
        for seed in range(_MEMBERS)
    ]


def _seconds(jobs: Sequence[TrainJob], splits: Splits, width: WidthPolicy) -> float:
    """Processor time of training them together."""
    begun = time.process_time()
    train_stack(splits, task=jobs[0].task, hooks=_Hooks(jobs), width=width)
    return time.process_time() - begun


def _one_by_one(jobs: Sequence[TrainJob], splits: Splits) -> float:
    return sum(_seconds([job], splits, 1) for job in jobs)


def _training(rounds: int, sources: DataSources, *, mnist: bool) -> str:
    lines = [
        "| task | model | one by one, s | in one call | chosen width |",
        "|---|---|---:|---:|---:|",
    ]
    tasks = {"digits": _DIGITS, "mnist": _MNIST}
    for name, architecture, n, family in _CASES:
        if name == "mnist" and not mnist:
            continue
        task: AnyTask = TypeAdapter[AnyTask](AnyTask).validate_python(tasks[name])
        splits, jobs = task.load(sources), _jobs(task, architecture, n, family)
        ways: Sequence[Callable[[], float]] = (
            lambda jobs=jobs, splits=splits: _one_by_one(jobs, splits),
            lambda jobs=jobs, splits=splits: _seconds(jobs, splits, _MEMBERS),
            lambda jobs=jobs, splits=splits: _seconds(jobs, splits, "auto"),
        )
        _seconds(jobs, splits, _MEMBERS)
        found = [[way() for way in ways] for _ in range(rounds)]
        alone, *others = zip(*found, strict=True)
        ratios = [[a / b for a, b in zip(alone, one, strict=True)] for one in others]
        model = f"{architecture} {n} {family['kind']}"
        cells = [f"{statistics.median(alone):.2f}", *map(_spread, ratios)]
        lines.append(f"| {name} | {model} | {' | '.join(cells)} |")
        sys.stdout.write(lines[-1] + "\n")
        sys.stdout.flush()
    return "\n".join(lines)


def _spread(values: Sequence[float]) -> str:
    return f"{statistics.median(values):.2f} ({min(values):.2f}-{max(values):.2f})"


@dataclass(frozen=True)
class _Ran:
    """What came of a study."""

    per_hour: float
    epochs_per_hour: float
    hypervolume: float


def _ran(server: Server, spec: Mapping[str, Any]) -> _Ran:
    study_id = server.submit(spec)
    while (study := server.study(study_id))["state"] not in ("finished", "failed", "cancelled"):
        time.sleep(1)
    assert study["state"] == "finished", study
    trials = [trial for trial in server.trials(study_id) if trial["epochs_trained"]]
    if spec.get("confirm"):
        trials = [trial for trial in trials if trial["origin"] == "confirmation"]
    begun = min(datetime.fromisoformat(trial["started_at"]) for trial in trials)
    ended = max(datetime.fromisoformat(trial["finished_at"]) for trial in trials)
    hours = (ended - begun).total_seconds() / 3600
    return _Ran(
        per_hour=len(trials) / hours,
        epochs_per_hour=sum(trial["epochs_trained"] for trial in trials) / hours,
        hypervolume=server.get(f"/v1/studies/{study_id}/front")["hypervolume"],
    )


def _studies(rounds: int, folder: Path, only: Sequence[str], *, mnist: bool) -> str:
    lines = [
        "| study | trials per hour, stack 1 | auto | ratio | ratio of epochs per hour "
        "| hypervolume, stack 1 | auto |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    environment = {"REFLECTORY_DATA": str(folder / "images")} if mnist else {}
    server = Server(folder / "data", workers=2, environment=environment)
    try:
        server.start()
        for name, spec in _STUDIES.items():
            if (spec["task"]["kind"] == "mnist" and not mnist) or (only and name not in only):
                continue
            warm = {"budget": {"trials": 2, "epochs": 1}, "sampler": {"kind": "random"}}
            server.wait(server.submit({**spec, **warm, "confirm": 0}))
            pairs: list[tuple[_Ran, _Ran]] = []
            for seed in range(rounds):
                alone = _ran(server, {**spec, "seed": seed, "resources": {"stack": 1}})
                pairs.append(
                    (alone, _ran(server, {**spec, "seed": seed, "resources": {"stack": "auto"}}))
                )
            ratios = [b.per_hour / a.per_hour for a, b in pairs]
            epochs = [b.epochs_per_hour / a.epochs_per_hour for a, b in pairs]
            sides = list(zip(*pairs, strict=True))
            hours = [f"{statistics.median(one.per_hour for one in side):.0f}" for side in sides]
            volumes = [_spread([one.hypervolume for one in side]) for side in sides]
            cells = [name, *hours, _spread(ratios), _spread(epochs), *volumes]
            lines.append(f"| {' | '.join(cells)} |")
            sys.stdout.write(lines[-1] + "\n")
            sys.stdout.flush()
    finally:
        server.close()
    return "\n".join(lines)


def main() -> None:
    """Run what is asked for, and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="of training")
    parser.add_argument("--studies", type=int, default=3, help="rounds of studies; 0: none")
    parser.add_argument("--only", nargs="*", default=(), choices=list(_STUDIES))
    parser.add_argument("--data", type=Path, help="folder with MNIST's files")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if arguments.data is not None:
            write_images(folder / "images", arguments.data)
        mnist = arguments.data is not None
        sources = DataSources(cache=folder / "cache", folder=folder / "images" if mnist else None)
        tables = []
        if arguments.rounds:
            tables.append(_training(arguments.rounds, sources, mnist=mnist))
        if arguments.studies:
            tables.append(_studies(arguments.studies, folder, arguments.only, mnist=mnist))
    sys.stdout.write("\n\n" + "\n\n".join(tables) + "\n")


if __name__ == "__main__":
    main()
