"""What processes that are killed in training do: apart from pytest, which each would import."""

import os
import signal
from pathlib import Path
from typing import Any

from models.checkpoint import save_bytes
from search.tasks import DataSources
from search.training.jobs import TrainJob
from search.training.run import train
from tests.search.training_cases import RecordingHooks


class KilledHooks(RecordingHooks):
    """Writes resume files to disk, and is killed right after one of them."""

    def __init__(self, file: Path, kill_after: int | None) -> None:
        super().__init__()
        self.file, self.kill_after = file, kill_after

    def save(self, resume: bytes) -> None:
        super().save(resume)
        self.file.write_bytes(resume)
        if len(self.saved) == self.kill_after:
            os.kill(os.getpid(), signal.SIGKILL)


def run(job: TrainJob, cache: Path, file: Path, kill_after: int | None) -> dict[str, Any]:
    """Train from the file where there is one; give every number that came out."""
    hooks = KilledHooks(file, kill_after)
    resume = file.read_bytes() if file.exists() else None
    splits = job.task.load(DataSources(cache=cache))
    result = train(job, splits, task=job.task, hooks=hooks, resume=resume)
    return {
        "outcome": result.outcome,
        "checkpoint": save_bytes(result.module, job.trial.model),
        "best": (result.quality, result.test_quality, result.best_epoch, result.epochs_trained),
        "curve": {
            report.epoch: report.model_dump(exclude={"seconds", "stood_still_seconds"})
            for report in hooks.reports
        },
    }
