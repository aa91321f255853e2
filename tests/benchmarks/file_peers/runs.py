"""Runs of the comparison at equal bytes, kept line by line in a file."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from tests.benchmarks.file_peers.candidates import Candidate

Stage = Literal["screen", "tune", "judge", "after"]


@dataclass(frozen=True, kw_only=True)
class Run:
    """A configuration, trained once with one seed and learning rate."""

    task: str
    size: int
    """Kilobytes that its file may have."""
    stage: Stage
    family: str
    bits: int
    width: int
    count: int
    seed: int
    rate: float
    bytes: int
    """Of its file, without metadata."""
    parameters: int
    validation: float
    """Share of right answers of the rounded network, of the best epoch."""
    validation_loss: float
    test: float | None
    """Share of right answers of the file in onnxruntime; None before the judging stage."""
    epoch: int
    seconds: float

    @property
    def candidate(self) -> Candidate:
        """The configuration."""
        return Candidate(family=self.family, bits=self.bits, width=self.width, count=self.count)

    @property
    def rank(self) -> tuple[float, float]:
        """Better ones are larger: accuracy on validation images, then minus the loss."""
        return self.validation, -self.validation_loss


class Runs:
    """The runs in a file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.all: list[Run] = []
        if path.exists():
            self.all = [Run(**json.loads(line)) for line in path.read_text().splitlines()]

    def of(self, task: str, size: int, stage: Stage) -> list[Run]:
        """Those of one stage, in the order in which they were trained."""
        wanted = (task, size, stage)
        return [run for run in self.all if (run.task, run.size, run.stage) == wanted]

    def like(
        self, task: str, stage: Stage, candidate: Candidate, seed: int, rate: float
    ) -> list[Run]:
        """The same training, for whatever size."""
        wanted = (task, stage, candidate, seed, rate)
        return [
            run
            for run in self.all
            if (run.task, run.stage, run.candidate, run.seed, run.rate) == wanted
        ]

    def ranked(self, task: str, size: int, stage: Stage) -> list[Candidate]:
        """Configurations by the best of their runs in a stage, best first."""
        found = sorted(self.of(task, size, stage), key=lambda run: run.rank, reverse=True)
        return list(dict.fromkeys(run.candidate for run in found))

    def tuned(self, task: str | None) -> set[tuple[str, int]] | None:
        """Families and bits that screening left of a task, for any size; None where none are."""
        found = [run for run in self.all if (run.task, run.stage) == (task, "tune")]
        return {(run.family, run.bits) for run in found} or None

    def rate_of(self, task: str, size: int, candidate: Candidate) -> float:
        """The learning rate with which tuning found it best."""
        found = [run for run in self.of(task, size, "tune") if run.candidate == candidate]
        return max(found, key=lambda run: run.rank).rate

    def add(self, run: Run) -> Run:
        """Keep a run."""
        self.all.append(run)
        with self._path.open("a") as file:
            file.write(json.dumps(asdict(run)) + "\n")
        return run
