"""`python -m tests.benchmarks.epochs`: epochs per second by kind of trial and by backend.

Trains as a worker does, data, optimizer and validation included, on one thread: in each round every
kind of trial once by our kernels and once by torch's operations. `--task mnist` takes MNIST's rows
from REFLECTORY_DATA; `--task digits`, the default, needs no files.
"""

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import torch

from models.kernels.choice import prefer
from models.model import ModelSpec
from search.tasks import DataSources, Digits, Mnist, Splits
from search.training.jobs import EpochReport, TrainJob, Verdict
from search.training.run import train
from search.training.trial_spec import TrainingSpec, TrialSpec
from tests.benchmarks.processes import run_on_cpu

TASKS = {"digits": Digits(), "mnist": Mnist(layout="rows", train_samples=5_000)}
BATCH = {"digits": 64, "mnist": 128}
SIZE = {"digits": 64, "mnist": 128}
EPOCHS = {"digits": 20, "mnist": 2}

ARCHITECTURES = ("rnn", "gru", "lstm")
PARAMETRIZATIONS: tuple[Mapping[str, object], ...] = (
    {"kind": "dense"},
    {"kind": "householder_svd", "m1": 8, "m2": 8},
    {"kind": "low_rank_diagonal", "d": 8},
    {"kind": "packed_rotations", "count": 8},
)


class Uninterrupted:
    """Goes on to the end and keeps nothing."""

    stood_still_seconds = 0.0

    def batch(self) -> AbstractContextManager[None]:
        """Nothing to wait for."""
        return nullcontext()

    def epoch_done(self, report: EpochReport) -> Verdict:
        """Go on."""
        del report
        return Verdict(lease_seconds=60.0)

    def save(self, resume: bytes) -> None:
        """Not asked for: the time between two resume files is longer than a run."""


def job(
    task: str, architecture: str, parametrization: Mapping[str, object], epochs: int
) -> TrainJob:
    """One trial of the table."""
    model = ModelSpec.model_validate(
        {
            "architecture": {"kind": architecture, "hidden_size": SIZE[task]},
            "parametrization": parametrization,
            "signature": TASKS[task].signature(),
        }
    )
    training = TrainingSpec(batch_size=BATCH[task])
    return TrainJob(
        task=TASKS[task],
        trial=TrialSpec(model=model, training=training, seed=0),
        number=0,
        epochs=epochs,
        checkpoint_seconds=3600.0,
    )


def epochs_per_second(job: TrainJob, splits: Splits) -> float:
    """Of one run from its first step to its test."""
    begun = time.process_time()
    train(job, splits, task=job.task, hooks=Uninterrupted())
    return job.epochs / (time.process_time() - begun)


def main(arguments: Sequence[str]) -> int:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.epochs")
    parser.add_argument("--task", choices=sorted(TASKS), default="digits")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument(
        "--quick", action="store_true", help="one epoch, one round: only that it runs"
    )
    options = parser.parse_args(arguments)
    rounds, epochs = (1, 1) if options.quick else (options.rounds, EPOCHS[options.task])
    torch.set_num_threads(1)
    folder = os.environ.get("REFLECTORY_DATA")
    with tempfile.TemporaryDirectory() as cache:
        sources = DataSources(cache=Path(cache), folder=Path(folder) if folder else None)
        splits = TASKS[options.task].load(sources)
        jobs = {
            (architecture, parametrization["kind"]): job(
                options.task, architecture, parametrization, epochs
            )
            for architecture in ARCHITECTURES
            for parametrization in PARAMETRIZATIONS
        }
        rates = {(*kind, ours): [] for kind in jobs for ours in (True, False)}
        for measured in range(rounds + 1):
            for kind, each in jobs.items():
                for ours in (True, False):
                    with nullcontext() if ours else prefer("torch"):
                        rate = epochs_per_second(each, splits)
                    if measured or options.quick:  # the first round warms up
                        rates[(*kind, ours)].append(rate)
    write = sys.stdout.write
    size, batch = SIZE[options.task], BATCH[options.task]
    write("# Epochs per second, by kind of trial\n\n")
    write(f"{options.task}, n = {size}, batch {batch}, {len(splits.train)} training samples, ")
    write(f"{rounds} rounds of {epochs} epochs, epochs per second of processor time\n\n")
    write("| trial | kernels | torch's operations | gain (quartiles) |\n|---|---:|---:|---:|\n")
    for architecture, parametrization in jobs:
        ours = rates[architecture, parametrization, True]
        theirs = rates[architecture, parametrization, False]
        gains = sorted(a / b for a, b in zip(ours, theirs, strict=True))
        low, middle, high = (
            statistics.quantiles(gains, n=4, method="inclusive") if len(gains) > 1 else gains * 3
        )
        write(
            f"| {architecture} {parametrization} | {statistics.median(ours):.3g} "
            f"| {statistics.median(theirs):.3g} | {middle:.2f} ({low:.2f}-{high:.2f}) |\n"
        )
    return 0


if __name__ == "__main__":
    if os.environ.get("THP_MEM_ALLOC_ENABLE") == "1":  # as workers have it, before torch is there
        sys.exit(main(sys.argv[1:]))
    sys.exit(run_on_cpu("tests.benchmarks.epochs", sys.argv[1:]))
