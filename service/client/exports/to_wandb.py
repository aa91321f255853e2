"""Runs in Weights & Biases: each has the trial's own id, by which it is taken up again."""

import os
import shutil
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from service.client.errors import ExportFailed, ExtraMissing
from service.client.exports.runs import Run
from storage.records import TrialState

_PROJECT = "reflectory"
_BROKEN = frozenset({TrialState.FAILED, TrialState.CANCELLED})


def write(runs: Sequence[Run], place: str | None) -> str:
    """Write a run for each trial into the project `place`; returns the project.

    Where W&B is offline, as `WANDB_MODE` says, a run's folder of an earlier export is replaced.
    Else epochs that the run has already are left as they are.

    Raises:
        ExtraMissing: wandb is not installed.
        ExportFailed: it does not take the runs: nobody is logged in, or the project is refused.
    """
    try:
        import wandb
        from wandb.errors import Error
    except ImportError as error:
        raise ExtraMissing("an export to W&B", "wandb", "wandb") from error
    project = place or _PROJECT
    try:
        for run in runs:
            _write(wandb, run, project)
    except Error as error:
        raise ExportFailed(f"W&B says of the project {project!r}: {error}") from error
    return project


def _write(wandb: Any, run: Run, project: str) -> None:
    with _replaced(_offline_folders(run)):
        _open_and_write(wandb, run, project)


def _open_and_write(wandb: Any, run: Run, project: str) -> None:
    opened = wandb.init(
        project=project,
        id=run.key,
        name=run.name,
        group=run.study_id,
        config={**run.params, **run.tags},
        tags=[f"study {run.study_id}", run.study_name[:64], str(run.outcome)],
        resume="allow",
        settings=wandb.Settings(silent=True, console="off", x_disable_stats=True),
    )
    first = opened.starting_step
    for point in run.curves:
        if point.epoch >= first:
            opened.log(dict(point.values), step=point.epoch)
    opened.summary.update(dict(run.values))
    opened.finish(exit_code=1 if run.outcome in _BROKEN else 0)


@contextmanager
def _replaced(folders: Sequence[Path]) -> Generator[None]:
    """Delete folders once others are written in their place; a fault leaves them.

    They are out of the way meanwhile: W&B names folders by the second, and gives one that is
    written within the same second another name, by which no later export finds it.
    """
    aside = [folder.rename(folder.with_name(f"replaced-{folder.name}")) for folder in folders]
    try:
        yield
    except BaseException:
        for before, folder in zip(aside, folders, strict=True):
            if not folder.exists():
                before.rename(folder)
        raise
    for before in aside:
        shutil.rmtree(before)


def _offline_folders(run: Run) -> list[Path]:
    """What earlier exports left on this machine of the same run."""
    root = Path(os.environ.get("WANDB_DIR", ".")) / "wandb"
    return sorted(root.glob(f"offline-run-*-{run.key}"))
