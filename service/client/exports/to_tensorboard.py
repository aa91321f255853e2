"""Runs as TensorBoard reads them: a folder for each trial."""

import secrets
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from service.client.errors import ExtraMissing
from service.client.exports.runs import Run

_FILES = "events.out.tfevents.*"


def write(runs: Sequence[Run], place: str | None) -> str:
    """Write a folder `STUDY/trial-N` for each run; returns the folder for `tensorboard --logdir`.

    What an earlier export wrote of a trial is replaced.

    Raises:
        ExtraMissing: tensorboardX is not installed.
    """
    try:
        from tensorboardX import SummaryWriter  # pyright: ignore[reportMissingTypeStubs] -- has none
    except ImportError as error:
        raise ExtraMissing("an export to TensorBoard", "tensorboardX", "tensorboard") from error
    root = Path(place or "tensorboard")
    for run in runs:
        folder = root / run.study_id / f"trial-{run.trial}"
        folder.mkdir(parents=True, exist_ok=True)
        before = sorted(folder.glob(_FILES))
        # Files are named by the second; a name that was there would be removed with those before.
        writer: Any = SummaryWriter(str(folder), filename_suffix=f".{secrets.token_hex(4)}")
        _write(writer, run)
        writer.close()
        # Only now: a reader sees a run twice meanwhile rather than none.
        for file in before:
            file.unlink()
    return str(root)


def _write(writer: Any, run: Run) -> None:
    from tensorboardX import summary as untyped  # pyright: ignore[reportMissingTypeStubs] -- has none

    summaries: Any = untyped

    for point in run.curves:
        for name, value in point.values.items():
            writer.add_scalar(name, value, point.epoch, walltime=point.at.timestamp())
    ended = (run.finished_at or run.started_at).timestamp()
    last = run.curves[-1].epoch if run.curves else 0
    for name, value in run.values.items():
        writer.add_scalar(name, value, last, walltime=ended)
    for name, text in run.tags.items():
        writer.add_text(name, text, last, walltime=ended)
    for summary in summaries.hparams(dict(run.params), dict(run.values)):
        writer.file_writer.add_summary(summary, last, walltime=ended)
