"""`python -m tests.benchmarks.search_efficiency.training NAME`: train and store a table of curves.

Every configuration of a small space is trained with the project's own training, once per seed. A
replay then asks the table instead of training, so that a search of thousands of epochs takes
seconds. The curves follow from their seeds; seconds of an epoch and measured throughputs are this
machine's. Seeds that the file already has are not trained again.
"""

import argparse
import os
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from multiprocessing import get_context
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from search.errors import TrainingDiverged
from search.measuring.throughput import measure
from search.tasks import DataSources, Split, Splits
from search.training.jobs import EpochReport, MeasureJob, Shape, TrainJob, Verdict
from search.training.run import train
from search.training.trial_spec import TrainingSpec, TrialSpec
from tests.benchmarks.search_efficiency.spaces import SPACES, Space, Structure, multiply_adds

MEASURED_BATCH = 64
"""Samples per call of a measured throughput: what a study measures with unless it is told."""


class Curve:
    """Goes on to the end and keeps what each epoch reported."""

    stood_still_seconds = 0.0

    def __init__(self) -> None:
        self.validation: list[float] = []
        self.seconds: list[float] = []

    def batch(self) -> AbstractContextManager[None]:
        """Nothing to wait for."""
        return nullcontext()

    def epoch_done(self, report: EpochReport) -> Verdict:
        """Keep the numbers and go on."""
        self.validation.append(report.validation)
        self.seconds.append(report.seconds)
        return Verdict(lease_seconds=60.0)

    def save(self, resume: bytes) -> None:
        """Not asked for: the time between two resume files is longer than a run."""


class Trained(NamedTuple):
    """The curves of one structure with one seed. Letters: R learning rates, E epochs."""

    correct: NDArray[np.uint16]
    """[R, E], validation samples after each epoch; from where it diverged on, the baseline's."""
    diverged_in: NDArray[np.uint16]
    """[R], the epoch in which training diverged; 0: it did not."""
    epoch_seconds: float
    """The median; 0 where no epoch was trained to its end."""


def curves(space: Space, structure: Structure, seed: int, epochs: int) -> Trained:
    """Train one structure with every learning rate."""
    threads_before = torch.get_num_threads()
    torch.set_num_threads(1)
    splits = _splits(space.name)
    correct = np.empty((len(space.learning_rates), epochs), np.uint16)
    diverged_in = np.zeros(len(space.learning_rates), np.uint16)
    seconds: list[float] = []
    for row, learning_rate in enumerate(space.learning_rates):
        training = TrainingSpec(learning_rate=learning_rate, batch_size=space.batch_size)
        job = TrainJob(
            task=space.task,
            trial=TrialSpec(model=structure.model(space.task), training=training, seed=seed),
            number=0,
            epochs=epochs,
            checkpoint_seconds=3600.0,
        )
        curve = Curve()
        try:
            train(job, splits, task=space.task, hooks=curve)
        except TrainingDiverged:
            diverged_in[row] = len(curve.validation) + 1
        reached = curve.validation + [space.metric.baseline] * (epochs - len(curve.validation))
        correct[row] = np.rint(np.array(reached) * space.validation_samples)
        seconds += curve.seconds
    torch.set_num_threads(threads_before)
    return Trained(correct, diverged_in, float(np.median(seconds or [0.0])))


def measured(space: Space, structures: Iterable[Structure]) -> NDArray[np.float64]:
    """Samples per second [S]: each structure's ratio to its dense baseline, times that one's.

    Whoever calls should have the machine alone. A study measures likewise.
    """
    found: dict[Structure, float] = {}
    for structure in structures:
        baseline = space.dense_twin(structure)
        if baseline not in found:
            found[baseline] = _measured(space, baseline)[0]
        if structure not in found:
            found[structure] = _measured(space, structure)[1] * found[baseline]
    return np.array([found[structure] for structure in structures])


def write(space: Space, path: Path, *, seeds: Sequence[int], processes: int) -> None:
    """Train all curves, one seed after the other; what is there is stored after each."""
    known = space.structures()
    models = [structure.model(space.task) for structure in known]
    stored: dict[str, NDArray[np.generic]] = dict(_stored(path)) or {
        "correct": np.empty((len(known), len(space.learning_rates), 0, space.epochs), np.uint16),
        "diverged_in": np.empty((len(known), len(space.learning_rates), 0), np.uint16),
        "seeds": np.empty(0, np.int64),
        "epoch_seconds": np.empty((0, len(known))),
    }
    stored["parameters"] = np.array([model.parameter_count() for model in models])
    stored["multiply_adds"] = np.array([multiply_adds(model) for model in models])
    stored["torch_version"] = np.array(torch.__version__)
    if space.is_measured and "samples_per_second" not in stored:
        stored["samples_per_second"] = measured(space, known)
    for seed in sorted(set(seeds) - set(stored["seeds"].tolist())):
        columns = [space] * len(known), known, [seed] * len(known), [space.epochs] * len(known)
        if processes == 1:
            found = list(map(curves, *columns))
        else:
            with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
                found = list(pool.map(curves, *columns))
        rows, diverged_in, seconds = map(np.stack, zip(*found, strict=True))
        stored["correct"] = np.concatenate([stored["correct"], rows[:, :, None]], axis=2)
        stored["diverged_in"] = np.concatenate(
            [stored["diverged_in"], diverged_in[:, :, None]], axis=2
        )
        stored["seeds"] = np.append(stored["seeds"], seed)
        stored["epoch_seconds"] = np.concatenate([stored["epoch_seconds"], seconds[None]])
        _replace(path, stored)


def _measured(space: Space, structure: Structure) -> tuple[float, float]:
    """Samples per second, and the ratio to the dense baseline's."""
    model = structure.model(space.task)
    shape = Shape(trial=0, shape_key=model.shape_key(), model=model)
    [report] = measure(MeasureJob(shapes=(shape,), batch_size=MEASURED_BATCH))
    return report.samples_per_second, report.ratio


def _stored(path: Path) -> Mapping[str, NDArray[np.generic]]:
    """What a run before has written."""
    if not path.exists():
        return {}
    with np.load(path, allow_pickle=False) as stored:
        return dict(stored)


def _replace(path: Path, arrays: Mapping[str, NDArray[np.generic]]) -> None:
    """Write the whole file, or none of it."""
    half = path.with_suffix(".half.npz")
    np.savez_compressed(half, **arrays)  # pyright: ignore[reportArgumentType] -- keyword arrays
    half.replace(path)


@cache
def _splits(name: str) -> Splits[Split]:
    """A space's data, read once per process; from `REFLECTORY_DATA` where there is that folder."""
    folder = os.environ.get("REFLECTORY_DATA")
    with tempfile.TemporaryDirectory() as cache_folder:
        found = SPACES[name].splits(
            DataSources(cache=Path(cache_folder), folder=None if folder is None else Path(folder))
        )
        # The cache's arrays are mapped into memory and go with their folder.
        return Splits(*(Split(part.x.clone(), part.y.clone()) for part in _parts(found)))


def _parts(splits: Splits[Split]) -> tuple[Split, Split, Split]:
    return splits.train, splits.validation, splits.test


def main(arguments: Sequence[str]) -> int:
    """Make a table."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.search_efficiency.training")
    parser.add_argument("space", choices=SPACES)
    parser.add_argument("--out", type=Path, help="the file; the stored one by default")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    options = parser.parse_args(arguments)
    space = SPACES[options.space]
    write(space, options.out or space.file, seeds=options.seeds, processes=options.processes)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
