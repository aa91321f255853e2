"""`python -m tests.benchmarks.ucr_validation`: what setting a fifth of TRAIN aside costs on UCR.

The papers' rows are trained here on four fifths of TRAIN, and the last fifth chooses the epoch: of
small sets it has 5 to 10 series. Beside that stand the last epoch in its place, and the last epoch
of a training on all of TRAIN. All else is the row's recipe. `REFLECTORY_DATA` names the folder of
the archive's files.
"""

import argparse
import os
import statistics
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import torch

from search.documents.papers import PrintedValue
from search.papers.row import Row, task_document
from search.papers.tables import UCR
from search.tasks import Split, Splits, Ucr
from search.tasks.sources import DataSources
from search.training.jobs import TrainJob
from search.training.run import train
from search.training.trial_spec import TrialSpec
from tests.benchmarks.cpu.machine import described
from tests.search.training_cases import RecordingHooks

_SETS = ("FaceFour", "CBF", "Beef", "ArrowHead", "InsectWingbeatSound", "Adiac", "FaceAll")
"""Of 24 to 560 series."""


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.ucr_validation")
    parser.add_argument("--sets", nargs="+", default=_SETS, help="names of data sets")
    parser.add_argument("--system", default="svd-rnn-32-16", help="of the table's")
    parser.add_argument("--seeds", type=int, default=2)
    given = parser.parse_args()
    folder = os.environ.get("REFLECTORY_DATA")
    rows = {row.key: row for row in UCR.rows}
    keys = [f"{name}/{given.system}" for name in given.sets]
    unknown = [key for key in keys if key not in rows]
    if unknown:
        parser.error(f"the table has no row {', '.join(unknown)}; `reflectory papers ucr` has all")
    if folder is None:
        parser.error("REFLECTORY_DATA has to name the folder of the archive's files")
    torch.set_num_threads(1)
    circumstances = [*described(), f"{given.seeds} seeds, one thread"]
    sys.stdout.write("".join(f"- {line}\n" for line in circumstances) + "\n")
    with tempfile.TemporaryDirectory() as cache:
        sources = DataSources(cache=Path(cache), folder=Path(folder))
        for place, key in enumerate(keys):
            found = [_accuracies(rows[key], seed, sources) for seed in range(given.seeds)]
            if place == 0:
                names = " | ".join(found[0])
                sys.stdout.write(f"| row | printed | {names} |\n")
                sys.stdout.write("| --- |" + " ---: |" * (1 + len(found[0])) + "\n")
            claim = rows[key].claim
            assert isinstance(claim, PrintedValue), key
            means = (statistics.fmean(one[name] for one in found) for name in found[0])
            shown = " | ".join(f"{mean:.3f}" for mean in means)
            sys.stdout.write(f"| {key} | {claim.value:.3f} | {shown} |\n")
            sys.stdout.flush()


def _accuracies(row: Row, seed: int, sources: DataSources) -> Mapping[str, float]:
    """On TEST, by how TRAIN is used."""
    task = Ucr.model_validate(task_document(row.task, seed=seed)).resolved(sources)
    splits = task.load(sources)
    train_part, aside = splits.train, splits.validation
    assert train_part.lengths is None, "series of different lengths"
    whole = Split(torch.cat([train_part.x, aside.x]), torch.cat([train_part.y, aside.y]))
    last = replace(splits, chooses=False)
    ways = {
        "best epoch by validation": splits,
        "last epoch": last,
        "last epoch, all of TRAIN": replace(last, train=whole),
    }
    return {name: _accuracy(row, task, seed, way) for name, way in ways.items()}


def _accuracy(row: Row, task: Ucr, seed: int, splits: Splits[Split]) -> float:
    trial = TrialSpec(model=row.model, training=row.training, seed=seed)
    job = TrainJob(
        task=task, trial=trial, number=0, epochs=row.recipe.epochs, checkpoint_seconds=1e9
    )
    found = train(job, splits, task=task, hooks=RecordingHooks()).test_quality
    assert found is not None
    return found


if __name__ == "__main__":
    main()
