"""The small spaces that are trained in full, one per table: what is learned, by which models."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import TypeAlias

import torch

from models.architectures.feed_forward import FeedForward
from models.model import ModelSpec
from models.report import parameter_report
from search.spaces import ARCHITECTURE_KINDS, PARAMETRIZATION_KINDS
from search.spaces.model_space import main_slot
from search.studies.catalog import catalog
from search.tasks import DataSources, Digits, Mnist, Split, Splits, Ucr
from search.tasks.task import Metric
from search.tasks.timeseries.ucr import UcrFacts

AnyTask: TypeAlias = Digits | Mnist | Ucr

_LEVELS: Mapping[str, Callable[[int], Sequence[Mapping[str, float]]]] = {
    "factorized_svd": lambda _: [{"margin": margin} for margin in (1e-3, 1e-2, 0.1, 0.5)],
    "householder": lambda n: [{"m": count} for count in _reflectors(n)],
    "householder_svd": lambda n: [{"m1": count, "m2": count} for count in _reflectors(n)],
    "low_rank": lambda n: [{"d": rank} for rank in _ranks(n)],
    "low_rank_diagonal": lambda n: [{"d": rank} for rank in _ranks(n)],
    "packed_rotations": lambda n: [{"count": count} for count in _rotations(n)],
    "rotation_svd": lambda n: [{"count_u": count, "count_v": count} for count in _rotations(n)],
}
"""Parametrization -> its fields at four levels, for n units; the others have no sizes."""


def _reflectors(n: int) -> tuple[int, ...]:
    return n // 8, n // 4, n // 2, n


def _ranks(n: int) -> tuple[int, ...]:
    return 1, n // 8, n // 4, n // 2 - 1


def _rotations(n: int) -> tuple[int, ...]:
    return 2, n // 4, n // 2, n - 1


@dataclass(frozen=True)
class Structure:
    """A model of a space; `level` says how large its parametrization is, 0 if it has no sizes."""

    architecture: str
    hidden_size: int
    parametrization: str
    level: int

    def model(self, task: AnyTask) -> ModelSpec:
        """The document that is built and trained."""
        architecture = ARCHITECTURE_KINDS[self.architecture](hidden_size=self.hidden_size)
        signature = task.signature()
        fields: dict[str, float] = {}
        if self.parametrization in _LEVELS:
            fields |= _LEVELS[self.parametrization](self.hidden_size)[self.level]
        is_residual = main_slot(architecture.slots(signature)).residual
        if self.parametrization == "householder_svd" and is_residual:
            # As a study draws it: around 1 a residual branch would double what passes.
            fields["sigma_star"] = 0.0
        return ModelSpec.model_validate(
            {
                "architecture": architecture,
                "parametrization": {"kind": self.parametrization, **fields},
                "signature": signature,
            }
        )


@dataclass(frozen=True, kw_only=True)
class Space:
    """What a table holds the curves of: structures, each with every learning rate."""

    name: str
    task: AnyTask
    title: str
    """What is learned, in the report's words."""
    architectures: tuple[str, ...]
    parametrizations: tuple[str, ...]
    """Each with every architecture on which it is defined."""
    levels: tuple[int, ...]
    """Of every parametrization that has sizes."""
    sizes: tuple[int, ...]
    learning_rates: tuple[float, ...]
    epochs: int
    batch_size: int
    validation_samples: int
    """So many of those that there are, so that an epoch is mostly training."""
    is_measured: bool
    """Whether throughput is measured on a machine, or reckoned from multiply-adds."""
    validates_on_test: bool = False
    """Whether validation samples are some of the task's test, and its own are trained on."""

    @property
    def file(self) -> Path:
        """Where the table is stored."""
        return Path(__file__).with_name(f"{self.name}.npz")

    @property
    def metric(self) -> Metric:
        """The task's."""
        return self.task.metric

    @property
    def combinations(self) -> Mapping[str, tuple[str, ...]]:
        """Architecture -> the parametrizations that are defined on it."""
        defined = catalog().combinations
        return {
            architecture: tuple(
                kind for kind in self.parametrizations if kind in defined[architecture]
            )
            for architecture in self.architectures
        }

    def levels_of(self, parametrization: str) -> tuple[int, ...]:
        """The levels that a parametrization has here; level 0 alone if it has no sizes."""
        return self.levels if parametrization in _LEVELS else (0,)

    def structures(self) -> tuple[Structure, ...]:
        """All of them, in the order of the table's first axis."""
        return tuple(
            Structure(architecture, size, parametrization, level)
            for architecture, parametrizations in self.combinations.items()
            for size, parametrization in product(self.sizes, parametrizations)
            for level in self.levels_of(parametrization)
        )

    def dense_twin(self, structure: Structure) -> Structure:
        """What a structure's throughput is measured in turn with."""
        return replace(structure, parametrization="dense", level=0)

    def splits(self, sources: DataSources) -> Splits[Split]:
        """What is trained on and validated on; nothing reads the test."""
        found = self.task.load(sources)
        if not self.validates_on_test:
            validation = _part(found.validation, slice(self.validation_samples))
            return Splits(found.train, validation, _part(found.test, slice(1)))
        both = found.train, found.validation
        train = Split(torch.cat([part.x for part in both]), torch.cat([part.y for part in both]))
        # The archive sorts by class: every so many-th sample is a fair part of them.
        step = len(found.test) // self.validation_samples
        validation = _part(found.test, slice(0, step * self.validation_samples, step))
        return Splits(train, validation, _part(found.test, slice(1)))


def multiply_adds(model: ModelSpec) -> int:
    """Of the matrix products of one sample, with structured weights applied in the cheaper way.

    That is by their factors, or as the dense matrices that they are. Recurrent models apply them at
    every step, feed-forward ones once to the whole sequence.
    """
    report = parameter_report(model)
    once = min(report.totals.multiply_adds, report.dense_twin.multiply_adds)
    is_whole = isinstance(model.architecture, FeedForward)
    return once if is_whole else once * model.signature.sequence_length


def _part(split: Split, rows: slice) -> Split:
    return Split(split.x[rows], split.y[rows])


DIGITS = Space(
    name="digits",
    task=Digits(),
    title="digits, 8 rows of 8 pixels, 997 training and 400 validation images",
    architectures=("rnn", "gru"),
    parametrizations=("dense", "householder_svd", "low_rank_diagonal", "packed_rotations"),
    levels=(0, 1, 2, 3),
    sizes=(16, 32, 64),
    learning_rates=(1e-3, 3e-3, 1e-2, 3e-2),
    epochs=27,
    batch_size=128,
    validation_samples=400,
    is_measured=False,
)
MNIST_ROWS = Space(
    name="mnist_rows",
    task=Mnist(layout="rows", train_samples=1500),
    title="MNIST, 28 rows of 28 pixels, 1,500 training and 1,000 validation images",
    architectures=("rnn", "gru"),
    parametrizations=("dense", "householder_svd", "low_rank_diagonal", "packed_rotations"),
    levels=(0, 1, 2, 3),
    sizes=(24, 48, 96),
    learning_rates=(1e-3, 3e-3, 1e-2, 3e-2),
    epochs=27,
    batch_size=128,
    validation_samples=1000,
    is_measured=True,
)
ECG5000 = Space(
    name="ecg5000",
    task=Ucr(
        name="ECG5000",
        depth=35,
        facts=UcrFacts(
            samples={"train": 400, "validation": 100, "test": 4500},
            steps=35,
            shortest=35,
            features=4,
            outputs=5,
            classes=(1, 2, 3, 4, 5),
            class_counts=(292, 177, 10, 19, 2),
            train_sha256="916a8e9d714a1d6788169a0993b867a4dfc0ef8fe2548693535ffb7747e20536",
            test_sha256="9c73a22358fb084f5a6784d2082f2309714f4ebb1d187f7f098afed48ac0c2a5",
        ),
    ),
    title="ECG5000, 35 steps of 4 values, 500 training and 1,500 validation series",
    architectures=tuple(ARCHITECTURE_KINDS),
    parametrizations=tuple(PARAMETRIZATION_KINDS),
    levels=(0, 2),
    sizes=(16, 48),
    learning_rates=(2e-3, 2e-2),
    epochs=27,
    batch_size=64,
    validation_samples=1500,
    is_measured=False,
    validates_on_test=True,
)
"""The whole catalog, on data that nothing here was tuned on: for judging only.

Training is the archive's whole TRAIN, validation every third series of its TEST: nothing is tested
in a table.
"""

SPACES: Mapping[str, Space] = {space.name: space for space in (DIGITS, MNIST_ROWS, ECG5000)}
PARAMETRIZATIONS = tuple(
    dict.fromkeys(kind for space in SPACES.values() for kind in space.parametrizations)
)
"""Of all spaces."""
