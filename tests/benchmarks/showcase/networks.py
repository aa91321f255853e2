"""The networks: originals of torch's layers, and what they are compressed to."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import torch
from torch import nn

from models.compression import convert, from_torch
from models.model import ModelSpec
from models.network import Network
from models.parametrizations import (
    AnyParametrization,
    HouseholderSvd,
    LowRank,
    LowRankDiagonal,
)
from search.tasks import Split, Splits
from search.tasks.images.digits import Digits
from search.tasks.images.mnist import Mnist
from tests.benchmarks.peers.runs import samples_of
from tests.benchmarks.peers.settings import SequenceClassifier
from tests.benchmarks.peers.training import answers_of, fit

CELLS: Mapping[str, type[nn.GRU] | type[nn.LSTM]] = {"gru": nn.GRU, "lstm": nn.LSTM}
ORIGINAL = "original"
CALIBRATION = 256
BATCH, RATE, COMPRESSED_RATE = 100, 3e-3, 4e-3


@dataclass(frozen=True, kw_only=True)
class Effort:
    """How much everything is trained."""

    samples: int
    """Of the training split."""
    epochs: int
    """Of the original."""
    fine_tuning: int
    """Epochs of what it is compressed to, with the original's answers beside the labels."""


@dataclass(frozen=True, kw_only=True)
class Run:
    """One network of one seed: the original, or what it was compressed to."""

    cell: str
    size: int
    seed: int
    form: str
    """`original`, or the parametrization with its counts."""
    parameters: int
    validation: float
    validation_samples: int
    test: float
    test_samples: int

    @property
    def network(self) -> tuple[str, int]:
        """Whose run it is."""
        return self.cell, self.size


def members(size: int) -> Mapping[str, AnyParametrization]:
    """What a network with so many units is compressed to, by the words of the table."""
    return {
        f"low_rank, d = {size // 32}, tied": LowRank(d=size // 32, tied=True),
        f"low_rank, d = {size // 16}, tied": LowRank(d=size // 16, tied=True),
        f"low_rank, d = {size // 8}, tied": LowRank(d=size // 8, tied=True),
        f"low_rank_diagonal, d = {size // 16}, tied": LowRankDiagonal(d=size // 16, tied=True),
        f"householder_svd, m1 = m2 = {size // 32}": HouseholderSvd(
            m1=size // 32, m2=size // 32, bound="free"
        ),
    }


def data(task: str, samples: int) -> Splits[Split]:
    """The splits, of the training split the first so many; its order is random."""
    found = samples_of(_TASKS[task])
    train = found.train
    return replace(found, train=Split(train.x[:samples], train.y[:samples]))


_TASKS: Mapping[str, Mnist | Digits] = {"mnist": Mnist(layout="rows"), "digits": Digits()}


def spec_of(cell: str, size: int, splits: Splits[Split]) -> ModelSpec:
    """The spec of an original."""
    return _untrained(cell, size, splits, seed=0)[1]


def runs(
    cell: str, size: int, splits: Splits[Split], effort: Effort, seed: int
) -> Iterator[tuple[Run, ModelSpec]]:
    """Train an original and compress it to every member."""
    network, spec = _untrained(cell, size, splits, seed=seed)
    # Our kernels train it: they compute what torch's layers do.
    found = fit(
        network,
        splits,
        batch_size=BATCH,
        epochs=effort.epochs,
        rate=RATE,
        seed=seed,
        counts_from=1,
    )

    def run(form: str, spec: ModelSpec, validation: float, test: float) -> tuple[Run, ModelSpec]:
        return Run(
            cell=cell,
            size=size,
            seed=seed,
            form=form,
            parameters=spec.parameter_count(),
            validation=validation,
            validation_samples=len(splits.validation),
            test=test,
            test_samples=len(splits.test),
        ), spec

    yield run(ORIGINAL, spec, found.validation, found.test)
    answers = answers_of(network, splits.train)
    for form, parametrization in members(size).items():
        target = spec.model_copy(update={"parametrization": parametrization})
        small, _ = convert(network, target, calibration=splits.train.x[:CALIBRATION])
        better = fit(
            small,
            splits,
            batch_size=BATCH,
            epochs=effort.fine_tuning,
            rate=COMPRESSED_RATE,
            seed=seed,
            answers=answers,
        )
        yield run(form, target, better.validation, better.test)


def _untrained(
    cell: str, size: int, splits: Splits[Split], *, seed: int
) -> tuple[Network, ModelSpec]:
    """A fresh `nn.GRU` or `nn.LSTM` with its readout, as our network."""
    _, steps, features = splits.train.x.shape
    classes = int(splits.train.y.max()) + 1
    with torch.random.fork_rng():
        torch.manual_seed(seed)  # pyright: ignore[reportUnknownMemberType] -- untyped
        module = SequenceClassifier(CELLS[cell](features, size, batch_first=True), classes)
    return from_torch(module.state_dict(), sequence_length=steps)


def half_width(accuracy: float, samples: int) -> float:
    """Half of the 95 % interval of an accuracy on so many samples, by the normal distribution."""
    return 1.96 * math.sqrt(accuracy * (1 - accuracy) / samples)
