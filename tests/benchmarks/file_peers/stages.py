"""Screening, tuning and judging: who is trained on what, and with which learning rate."""

import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn import functional as F

from models.compression import convert
from models.exports.onnx.export import OUTPUT
from models.exports.onnx.runtime import Session
from models.exports.onnx.verify import verify
from models.network import Network
from search.tasks import Split, Splits
from tests.benchmarks.file_peers.candidates import (
    KILOBYTE,
    Candidate,
    dense_candidates,
    smallest_file,
    structured_candidates,
)
from tests.benchmarks.file_peers.runs import Run, Runs, Stage
from tests.benchmarks.file_peers.setups import ORIGINAL_WIDTH, SIZES, TUNING_SEED, Setup
from tests.benchmarks.peers.training import answers_of, fit

CALIBRATION = 256
TUNED, FINALISTS = 3, 2
"""Structured configurations for each size that are left by screening, and by tuning. Dense ones are
never sorted out: one for each number of bits."""
_SHORT_LOSS = 1e3


class Started:
    """The original of one seed, and the plain network of each width that contestants start from."""

    def __init__(self, setup: Setup, seed: int) -> None:
        self.setup, self.seed = setup, seed
        self.splits: Splits[Split] = setup.samples()
        self._answers: Tensor | None = None
        self._networks: dict[int, Network] = {}

    @property
    def answers(self) -> Tensor:
        """The original's logits for the training images."""
        if self._answers is None:
            self._answers = answers_of(self.network(ORIGINAL_WIDTH), self.splits.train)
        return self._answers

    def network(self, width: int) -> Network:
        """Trained once: from labels the original, from labels and the original any other width."""
        if width not in self._networks:
            network = self.setup.dense(width).build(seed=self.seed)
            self._fit(network, None if width == ORIGINAL_WIDTH else self.answers)
            self._networks[width] = network
        return self._networks[width]

    def made(self, candidate: Candidate) -> Network:
        """The conversion of the plain network of its width, not rounded."""
        calibration = self.splits.train.x[:CALIBRATION]
        target = candidate.spec(self.setup)
        network, _ = convert(
            self.network(candidate.width), target, calibration=calibration, rounds=False
        )
        return network

    @property
    def known(self) -> Splits[Split]:
        """What training sees: validation in the place of test images."""
        return Splits(self.splits.train, self.splits.validation, self.splits.validation)

    def _fit(self, network: Network, answers: Tensor | None) -> None:
        setup = self.setup
        fit(
            network,
            self.known,
            batch_size=setup.batch_size,
            epochs=setup.epochs,
            rate=setup.original_rate,
            seed=self.seed,
            answers=answers,
            counts_from=1,
        )


@dataclass(frozen=True, kw_only=True)
class Trained:
    """What a contestant became."""

    network: Network
    run: Run


def trained(
    started: Started, candidate: Candidate, *, size: int, stage: Stage, rate: float
) -> Trained:
    """Train a contestant, and where it is judged test the file that is made of it."""
    setup, splits = started.setup, started.splits
    started.network(candidate.width)  # not in the contestant's seconds
    begun = time.perf_counter()
    network = started.made(candidate)
    spec = candidate.spec(setup)
    short = stage == "screen"
    result = fit(
        network,
        started.known,
        batch_size=setup.batch_size,
        epochs=setup.screening if short else setup.fine_tuning,
        rate=rate,
        seed=started.seed,
        answers=started.answers,
        bits=spec.rounded_to,
        quantised_epochs=setup.screening // 2 if short else setup.quantised_epochs,
    )
    network.eval()
    content = smallest_file(network, spec)
    if stage == "judge":
        verify(content, network, spec)
    return Trained(
        network=network,
        run=Run(
            task=setup.name,
            size=size,
            stage=stage,
            family=candidate.family,
            bits=candidate.bits,
            width=candidate.width,
            count=candidate.count,
            seed=started.seed,
            rate=rate,
            bytes=len(content),
            parameters=spec.parameter_count(),
            validation=result.validation,
            validation_loss=_loss(network, splits.validation),
            test=file_accuracy(content, splits.test) if stage == "judge" else None,
            epoch=result.epoch,
            seconds=round(time.perf_counter() - begun, 2),
        ),
    )


def file_accuracy(content: bytes, split: Split) -> float:
    """The share of right answers that an ONNX file gives in onnxruntime."""
    found = Session(content).run(split.x)[OUTPUT]
    return float((found.argmax(-1) == split.y).double().mean())


def _loss(network: Network, split: Split) -> float:
    loss = float(F.cross_entropy(answers_of(network, split), split.y))
    return loss if math.isfinite(loss) else _SHORT_LOSS


def tune(
    runs: Runs, setup: Setup, sizes: Sequence[int] = SIZES, *, like: str | None = None
) -> Iterator[Run]:
    """With the tuning seed: screen configurations, then what is left with each learning rate.

    `like` is a task: only families and bits that its tuning was left with are looked at.
    """
    started = Started(setup, TUNING_SEED)
    among = runs.tuned(like)
    for size in sizes:
        limit = size * KILOBYTE
        for candidate in structured_candidates(setup, limit, among=among):
            yield from _train(runs, started, candidate, size, "screen", setup.rates[0])
        left = runs.ranked(setup.name, size, "screen")[:TUNED]
        for candidate in (*dense_candidates(setup, limit), *left):
            for rate in setup.rates:
                yield from _train(runs, started, candidate, size, "tune", rate)


def finalists(runs: Runs, task: str, size: int) -> list[Candidate]:
    """All dense configurations that tuning tried, and the best structured ones."""
    ranked = runs.ranked(task, size, "tune")
    structured = [one for one in ranked if not one.is_dense]
    return [one for one in ranked if one.is_dense] + structured[:FINALISTS]


def judge(runs: Runs, setup: Setup, seed: int, sizes: Sequence[int] = SIZES) -> Iterator[Run]:
    """Train the finalists of all sizes with another seed, each with the rate of its own."""
    started = Started(setup, seed)
    for size in sizes:
        for candidate in finalists(runs, setup.name, size):
            rate = runs.rate_of(setup.name, size, candidate)
            yield from _train(runs, started, candidate, size, "judge", rate)


def _train(
    runs: Runs, started: Started, candidate: Candidate, size: int, stage: Stage, rate: float
) -> Iterator[Run]:
    """Train what the file lacks; what was trained for another size is taken over."""
    known = runs.like(started.setup.name, stage, candidate, started.seed, rate)
    if any(run.size == size for run in known):
        return
    if known:
        yield runs.add(replace(known[0], size=size))
        return
    with torch.random.fork_rng():
        yield runs.add(trained(started, candidate, size=size, stage=stage, rate=rate).run)
