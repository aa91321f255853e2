"""`python -m tests.benchmarks.search_efficiency.table`: train and store the table of curves.

Every configuration of a small space is trained on digits with the project's own training, once per
seed. A replay then asks the table instead of training, so that a search of thousands of epochs
takes seconds. The curves follow from their seeds, the seconds of an epoch are this machine's.
Throughput is no timing but follows from the multiply-adds, so that it is the same everywhere.
"""

import argparse
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cache
from itertools import product
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from models.model import ModelSpec
from models.report import parameter_report
from search.tasks import DataSources, Digits, Split, Splits
from search.training import train
from search.trial import TrainingSpec, TrialSpec
from search.wire import EpochReport, TrainJob, Verdict

FILE = Path(__file__).with_name("digits.npz")
EPOCHS = 27
BATCH = 128
VALIDATION_SAMPLES = 400
SEEDS = (0, 1)
MULTIPLY_ADDS_PER_SECOND = 1e9
"""What throughputs are reckoned with."""
ARCHITECTURES = ("rnn", "gru")
SIZES = (16, 32, 64)
PARAMETRIZATIONS = ("dense", "householder_svd", "low_rank_diagonal", "packed_rotations")
LEVELS = 4
LEARNING_RATES = (1e-3, 3e-3, 1e-2, 3e-2)


@dataclass(frozen=True)
class Structure:
    """A model of the space; `level` says how large its parametrization is, and dense has none."""

    architecture: str
    hidden_size: int
    parametrization: str
    level: int

    def model(self) -> ModelSpec:
        """The document that is built and trained."""
        n, level = self.hidden_size, self.level
        reflectors = (n // 8, n // 4, n // 2, n)[level]
        sizes = {
            "dense": {},
            "householder_svd": {"m1": reflectors, "m2": reflectors},
            "low_rank_diagonal": {"d": (1, n // 8, n // 4, n // 2 - 1)[level]},
            "packed_rotations": {"count": (2, n // 4, n // 2, n - 1)[level]},
        }
        return ModelSpec.model_validate(
            {
                "architecture": {"kind": self.architecture, "hidden_size": n},
                "parametrization": {
                    "kind": self.parametrization,
                    **sizes[self.parametrization],
                },
                "signature": Digits().signature(),
            }
        )


def structures() -> tuple[Structure, ...]:
    """All of them, in the order of the table's first axis."""
    return tuple(
        Structure(architecture, size, parametrization, level)
        for architecture, size, parametrization in product(ARCHITECTURES, SIZES, PARAMETRIZATIONS)
        for level in range(1 if parametrization == "dense" else LEVELS)
    )


@dataclass(frozen=True)
class Table:
    """Curves of all configurations: a structure with a learning rate.

    Letters: S structures, R learning rates, K seeds, E epochs.
    """

    structures: tuple[Structure, ...]
    accuracy: NDArray[np.float64]
    """[S, R, K, E], validation accuracy of the best epoch so far."""
    parameters: NDArray[np.int64]
    """[S], trainable numbers."""
    samples_per_second: NDArray[np.float64]
    """[S], at `MULTIPLY_ADDS_PER_SECOND`."""
    epoch_seconds: NDArray[np.float64]
    """[S], the median epoch of training on the machine as it was, other work included."""
    torch_version: str

    @property
    def seeds(self) -> int:
        """How often each configuration was trained."""
        return self.accuracy.shape[2]

    @property
    def epochs(self) -> int:
        """Of a full training."""
        return self.accuracy.shape[3]


def read(path: Path = FILE) -> Table:
    """A stored table.

    Raises:
        ValueError: the file was made of another space.
    """
    with np.load(path, allow_pickle=False) as stored:
        correct = stored["correct"]
        known = structures()
        if correct.shape[:2] != (len(known), len(LEARNING_RATES)):
            raise ValueError(
                f"{path.name} holds curves of {correct.shape[:2]} structures and learning rates; "
                f"the space has {(len(known), len(LEARNING_RATES))}"
            )
        return Table(
            structures=known,
            accuracy=np.maximum.accumulate(correct / VALIDATION_SAMPLES, axis=3),
            parameters=stored["parameters"],
            samples_per_second=MULTIPLY_ADDS_PER_SECOND / stored["multiply_adds"],
            epoch_seconds=stored["epoch_seconds"],
            torch_version=str(stored["torch_version"]),
        )


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


def curves(structure: Structure, seed: int, epochs: int) -> tuple[NDArray[np.uint16], float]:
    """Correct validation samples [R, E] of one structure, and its median epoch's seconds."""
    torch.set_num_threads(1)
    splits = _splits()
    correct = np.empty((len(LEARNING_RATES), epochs), np.uint16)
    seconds: list[float] = []
    for row, learning_rate in enumerate(LEARNING_RATES):
        training = TrainingSpec(learning_rate=learning_rate, batch_size=BATCH)
        job = TrainJob(
            task=Digits(),
            trial=TrialSpec(model=structure.model(), training=training, seed=seed),
            number=0,
            epochs=epochs,
            checkpoint_seconds=3600.0,
        )
        curve = Curve()
        train(job, splits, task=Digits(), hooks=curve)
        correct[row] = np.rint(np.array(curve.validation) * VALIDATION_SAMPLES)
        seconds += curve.seconds
    return correct, float(np.median(seconds))


def write(path: Path, *, seeds: Sequence[int], processes: int) -> None:
    """Train all curves, one seed after the other; what is there is stored after each."""
    known = structures()
    models = [structure.model() for structure in known]
    correct = np.empty((len(known), len(LEARNING_RATES), 0, EPOCHS), np.uint16)
    seconds = np.empty((0, len(known)))
    with ProcessPoolExecutor(processes, mp_context=get_context("spawn")) as pool:
        for seed in seeds:
            found = list(pool.map(curves, known, [seed] * len(known), [EPOCHS] * len(known)))
            rows = np.stack([row for row, _ in found])
            correct = np.concatenate([correct, rows[:, :, None]], axis=2)
            seconds = np.vstack([seconds, [median for _, median in found]])
            np.savez_compressed(
                path,
                correct=correct,
                parameters=np.array([model.parameter_count() for model in models]),
                multiply_adds=np.array([multiply_adds(model) for model in models]),
                epoch_seconds=np.median(seconds, axis=0),
                torch_version=np.array(torch.__version__),
            )


def multiply_adds(model: ModelSpec) -> int:
    """Of the matrix products of one sample, with structured weights applied in the cheaper way.

    That is by their factors, or as the dense matrices that they are.
    """
    report = parameter_report(model)
    per_step = min(report.totals.multiply_adds, report.dense_twin.multiply_adds)
    return per_step * model.signature.sequence_length


@cache
def _splits() -> Splits[Split]:
    """Read once per process."""
    with tempfile.TemporaryDirectory() as folder:
        return Digits().load(DataSources(cache=Path(folder), folder=None))


def main(arguments: Sequence[str]) -> int:
    """Make the table."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.search_efficiency.table")
    parser.add_argument("--out", type=Path, default=FILE)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument(
        "--seeds", type=int, default=1, help="how many of them; the stored table has one"
    )
    options = parser.parse_args(arguments)
    write(options.out, seeds=SEEDS[: options.seeds], processes=options.processes)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
