"""The small spaces that are trained in full, one per table: what is learned, by which models."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path

from models.model import ModelSpec
from models.report import parameter_report
from search.tasks import DataSources, Digits, Mnist, Split, Splits
from search.tasks.task import Metric

ARCHITECTURES = ("rnn", "gru")
PARAMETRIZATIONS = ("dense", "householder_svd", "low_rank_diagonal", "packed_rotations")
LEVELS = 4


@dataclass(frozen=True)
class Structure:
    """A model of a space; `level` says how large its parametrization is, and dense has none."""

    architecture: str
    hidden_size: int
    parametrization: str
    level: int

    def model(self, task: Digits | Mnist) -> ModelSpec:
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
                "signature": task.signature(),
            }
        )


@dataclass(frozen=True, kw_only=True)
class Space:
    """What a table holds the curves of: structures, each with every learning rate."""

    name: str
    task: Digits | Mnist
    title: str
    """What is learned, in the report's words."""
    sizes: tuple[int, ...]
    learning_rates: tuple[float, ...]
    epochs: int
    batch_size: int
    validation_samples: int
    """The first so many of the task's own, so that an epoch is mostly training."""
    is_measured: bool
    """Whether throughput is measured on a machine, or reckoned from multiply-adds."""

    @property
    def file(self) -> Path:
        """Where the table is stored."""
        return Path(__file__).with_name(f"{self.name}.npz")

    @property
    def metric(self) -> Metric:
        """The task's."""
        return self.task.metric

    def structures(self) -> tuple[Structure, ...]:
        """All of them, in the order of the table's first axis."""
        return tuple(
            Structure(architecture, size, parametrization, level)
            for architecture, size, parametrization in product(
                ARCHITECTURES, self.sizes, PARAMETRIZATIONS
            )
            for level in range(1 if parametrization == "dense" else LEVELS)
        )

    def dense_twin(self, structure: Structure) -> Structure:
        """What a structure's throughput is measured in turn with."""
        return replace(structure, parametrization="dense", level=0)

    def splits(self, sources: DataSources) -> Splits[Split]:
        """The task's data, with as many validation samples as counts; nothing reads the test."""
        found = self.task.load(sources)
        validation = _first(found.validation, self.validation_samples)
        return Splits(found.train, validation, _first(found.test, 1))


def multiply_adds(model: ModelSpec) -> int:
    """Of the matrix products of one sample, with structured weights applied in the cheaper way.

    That is by their factors, or as the dense matrices that they are.
    """
    report = parameter_report(model)
    per_step = min(report.totals.multiply_adds, report.dense_twin.multiply_adds)
    return per_step * model.signature.sequence_length


def _first(split: Split, count: int) -> Split:
    return Split(split.x[:count], split.y[:count])


DIGITS = Space(
    name="digits",
    task=Digits(),
    title="digits, 8 rows of 8 pixels, 997 training and 400 validation images",
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
    sizes=(24, 48, 96),
    learning_rates=(1e-3, 3e-3, 1e-2, 3e-2),
    epochs=27,
    batch_size=128,
    validation_samples=1000,
    is_measured=True,
)
SPACES: Mapping[str, Space] = {space.name: space for space in (DIGITS, MNIST_ROWS)}
