"""`python -m tests.benchmarks.memory`: what trials are predicted to take, and what they take.

Each case trains an epoch in a process of its own, stores its state after every batch and makes its
checkpoint. What it takes is how far its resident memory grows beyond what it has with its data
loaded, so that `search.studies.memory`'s constant for a process is left out of the prediction.
`--quick` takes small models alone.
"""

import argparse
import json
import re
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from pydantic import TypeAdapter

from models.checkpoint import save_bytes
from models.model import ModelSpec
from search.agents.forking.fork_server import before_the_first_slot
from search.studies.memory import PROCESS_BYTES, training_need
from search.tasks import AnyTask, DataSources
from search.training.jobs import EpochReport, TrainJob, Verdict
from search.training.run import train
from search.training.trial_spec import TrainingSpec, TrialSpec

LARGE_BYTES = 200_000_000
"""Smaller trials are within what a process takes anyway."""

_DENSE = {"kind": "dense"}
_TASKS: TypeAdapter[AnyTask] = TypeAdapter(AnyTask)


@dataclass(frozen=True)
class Case:
    """A model, its task, and how it is trained."""

    architecture: dict[str, Any]
    parametrization: dict[str, Any]
    task: dict[str, Any]
    training: dict[str, Any]

    @property
    def name(self) -> str:
        """In words."""
        fields = {**self.architecture, **{"batch": self.training["batch_size"]}}
        sizes = ", ".join(f"{k} {v}" for k, v in fields.items() if k != "kind")
        own = ", ".join(f"{k} {v}" for k, v in self.parametrization.items() if k != "kind")
        form = self.parametrization["kind"] + (f" ({own})" if own else "")
        steps = self.task.get("steps", self.task.get("lag"))
        optimizer = self.training["optimizer"]
        return f"{self.architecture['kind']} {form}: {sizes}, {steps} steps, {optimizer}"


def _case(
    kind: str,
    hidden_size: int,
    parametrization: dict[str, Any] = _DENSE,
    *,
    steps: int = 8,
    batch: int = 16,
    optimizer: str = "adam",
    task: str = "addition",
    **fields: Any,
) -> Case:
    samples = {"train_samples": 2 * batch, "validation_samples": 64, "test_samples": 64}
    length = {"steps": steps} if task == "addition" else {"lag": steps}
    return Case(
        {"kind": kind, "hidden_size": hidden_size, **fields},
        parametrization,
        {"kind": task, **length, **samples},
        {"batch_size": batch, "optimizer": optimizer},
    )


SMALL = (_case("rnn", 32), _case("gru", 64, {"kind": "low_rank", "d": 8}, optimizer="sgd"))

CASES = (
    *SMALL,
    _case("rnn", 3000),
    _case("gru", 2048),
    _case("gru", 2048, optimizer="sgd"),
    _case("lstm", 1024, layers=2, optimizer="rmsprop"),
    _case("gru", 4096, {"kind": "low_rank", "d": 256}),
    _case("rnn", 4096, {"kind": "low_rank_diagonal", "d": 512}),
    _case("rnn", 2048, {"kind": "householder", "m": 256}),
    _case("gru", 1024, {"kind": "householder", "m": 1024}),
    _case("rnn", 1536, {"kind": "householder_svd", "m1": 768, "m2": 768}),
    _case("gru", 1024, {"kind": "householder_svd", "m1": 64, "m2": 64}),
    _case("rnn", 1536, {"kind": "factorized_svd"}),
    _case("rnn", 2048, {"kind": "rotation_svd", "count_u": 64, "count_v": 64}),
    _case("gru", 1536, {"kind": "packed_rotations", "count": 64}),
    _case("urnn", 1024, {"kind": "unitary_fft"}),
    _case("urnn", 768, {"kind": "unitary_full"}),
    _case("urnn", 384, {"kind": "unitary_fft"}, steps=200, batch=128),
    _case("rnn", 256, steps=800, batch=256),
    _case("gru", 256, steps=800, batch=256),
    _case("gru", 256, {"kind": "low_rank", "d": 16}, steps=400, batch=256, layers=3),
    _case("lstm", 256, steps=400, batch=256),
    _case("gru", 256, steps=100, batch=256, recurrent_dropout=0.2),
    _case("gru", 128, steps=300, batch=256, task="copy"),
    _case("urnn", 128, {"kind": "unitary_full"}, steps=200, batch=256),
    _case("mlp", 2048, layers=4),
    _case("mlp", 512, layers=8, batch=16384),
    _case("resnet", 512, blocks=4, batch=16384, dropout=0.2),
    _case("highway", 512, layers=8, batch=8192),
    _case("highway", 256, layers=8, batch=8192, stack="batch_normalised"),
)


def trial_of(case: Case) -> tuple[AnyTask, TrialSpec]:
    """The task and the trial of a case."""
    task = _TASKS.validate_python(case.task)
    model = ModelSpec.model_validate(
        {
            "architecture": case.architecture,
            "parametrization": case.parametrization,
            "signature": task.signature().model_dump(),
        }
    )
    return task, TrialSpec(model=model, training=TrainingSpec(**case.training), seed=0)


def predicted_bytes(case: Case) -> int:
    """What the case is predicted to take, without what any process takes."""
    task, trial = trial_of(case)
    return training_need(task, trial).total - PROCESS_BYTES


def measured_bytes(case: Case) -> int:
    """How far the resident memory of a process grows that trains the case."""
    command = [sys.executable, "-m", "tests.benchmarks.memory", "--child", json.dumps(vars(case))]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return int(done.stdout)


class _Hooks:
    stood_still_seconds = 0.0

    def batch(self) -> nullcontext[None]:
        return nullcontext()

    def epoch_done(self, report: EpochReport) -> Verdict:  # noqa: ARG002 -- it goes on anyway
        return Verdict(lease_seconds=1)

    def save(self, resume: bytes) -> None:
        """Made, and let go."""


def _grown(case: Case) -> int:
    torch.set_num_threads(1)
    task, trial = trial_of(case)
    job = TrainJob(task=task, trial=trial, number=0, epochs=1, checkpoint_seconds=0)
    with tempfile.TemporaryDirectory() as cache:
        splits = task.load(DataSources(cache=Path(cache)))
        # As a slot's process begins.
        before_the_first_slot()
        before = _status("VmRSS")
        # The peak is counted from here on.
        Path("/proc/self/clear_refs").write_text("5")
        result = train(job, splits, task=task, hooks=_Hooks())
        save_bytes(result.module, trial.model, extra={})
        return _status("VmHWM") - before


def _status(field: str) -> int:
    found = re.search(rf"^{field}:\s+(\d+) kB", Path("/proc/self/status").read_text(), re.MULTILINE)
    assert found is not None
    return 1024 * int(found[1])


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main(arguments: Sequence[str]) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--child")
    options = parser.parse_args(arguments)
    if options.child is not None:
        _say(str(_grown(Case(**json.loads(options.child)))))
        return 0
    _say("| model | predicted MB | measured MB | predicted / measured |")
    _say("|---|---:|---:|---:|")
    ratios: list[float] = []
    for case in SMALL if options.quick else CASES:
        predicted, measured = predicted_bytes(case), measured_bytes(case)
        ratio = predicted / measured
        if measured >= LARGE_BYTES:
            ratios.append(ratio)
        row = f"{case.name} | {predicted / 1e6:.0f} | {measured / 1e6:.0f} | {ratio:.2f}"
        _say(f"| {row} |")
    if ratios:
        _say(
            f"\nOf {len(ratios)} above {LARGE_BYTES // 10**6} MB: median "
            f"{statistics.median(ratios):.2f}, from {min(ratios):.2f} to {max(ratios):.2f}"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
