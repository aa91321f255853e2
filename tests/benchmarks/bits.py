"""`python -m tests.benchmarks.bits`: what a model keeps of its accuracy at 8 and at 4 bits.

Digits by rows, as a worker trains them, on one thread. Every kind of model is trained once for each
seed, at each number of bits, with and without quantised epochs in the same budget; the table has
the means of the test accuracy over the seeds with their standard errors, the bytes of the numbers,
and how long an epoch of either kind takes.
"""

import argparse
import os
import statistics
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path

import torch

from models.model import ModelSpec
from models.report import model_totals
from search.tasks import DataSources, Digits, Split, Splits
from search.training.jobs import EpochReport, TrainJob, Verdict
from search.training.run import train
from search.training.trial_spec import TrainingSpec, TrialSpec

TASK = Digits()
PARAMETRIZATIONS: Mapping[str, Mapping[str, object]] = {
    "dense": {"kind": "dense"},
    "low_rank": {"kind": "low_rank", "d": 8, "tied": True},
    "low_rank_norm": {"kind": "low_rank", "d": 8, "tied": True, "weight_norm": True},
    "householder_svd": {"kind": "householder_svd", "m1": 8, "m2": 8},
    "packed_rotations": {"kind": "packed_rotations", "count": 8},
    "factorized_svd": {"kind": "factorized_svd", "margin": 0.1},
}


@dataclass
class Curve:
    """Keeps an epoch's seconds; goes on to the end."""

    stood_still_seconds: float = 0.0
    seconds: list[float] = field(default_factory=list[float])

    def batch(self) -> AbstractContextManager[None]:
        """Nothing to wait for."""
        return nullcontext()

    def epoch_done(self, report: EpochReport) -> Verdict:
        """Go on."""
        self.seconds.append(report.seconds)
        return Verdict(lease_seconds=60.0)

    def save(self, resume: bytes) -> None:
        """Not asked for: the time between two resume files is longer than a run."""


def model(parametrization: Mapping[str, object], *, hidden_size: int, bits: int) -> ModelSpec:
    """A GRU on the digits' rows."""
    return ModelSpec.model_validate(
        {
            "architecture": {"kind": "gru", "hidden_size": hidden_size, "reset": "after"},
            "parametrization": parametrization,
            "signature": TASK.signature(),
            "bits": bits,
        }
    )


def trained(
    spec: ModelSpec, splits: Splits[Split], *, seed: int, epochs: int, quantised_epochs: int
) -> tuple[float, float]:
    """The test accuracy of one training, and the seconds of its last epoch."""
    job = TrainJob(
        task=TASK,
        trial=TrialSpec(
            model=spec, training=TrainingSpec(quantised_epochs=quantised_epochs), seed=seed
        ),
        number=0,
        epochs=epochs,
        checkpoint_seconds=1e9,
    )
    curve = Curve()
    result = train(job, splits, task=TASK, hooks=curve)
    assert result.test_quality is not None
    return result.test_quality, curve.seconds[-1]


def line(values: Sequence[float]) -> str:
    """A mean in per cent and its standard error."""
    error = statistics.stdev(values) / len(values) ** 0.5 if len(values) > 1 else 0.0
    return f"{100 * statistics.fmean(values):6.2f} ± {100 * error:.2f}"


def main(arguments: Sequence[str]) -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.bits")
    parser.add_argument("--seeds", type=int, default=6)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--quantised-epochs", type=int, nargs="+", default=[0, 2])
    parser.add_argument("--hidden-size", type=int, default=64)
    parser.add_argument("--only", nargs="+", choices=PARAMETRIZATIONS, default=PARAMETRIZATIONS)
    options = parser.parse_args(arguments)
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    write = sys.stdout.write
    write("parametrization    bits  quantised epochs  test accuracy, %   bytes  ms per epoch\n")
    with tempfile.TemporaryDirectory() as cache:
        splits = TASK.load(DataSources(cache=Path(cache)))
        for name in options.only:
            for bits in (32, 8, 4):
                spec = model(PARAMETRIZATIONS[name], hidden_size=options.hidden_size, bits=bits)
                for quantised in options.quantised_epochs if bits < 32 else [0]:
                    found = [
                        trained(
                            spec,
                            splits,
                            seed=seed,
                            epochs=options.epochs,
                            quantised_epochs=quantised,
                        )
                        for seed in range(options.seeds)
                    ]
                    accuracies, seconds = zip(*found, strict=True)
                    write(
                        f"{name:<18} {bits:>4}  {quantised:>16}  {line(accuracies):>16}  "
                        f"{model_totals(spec).stored_bytes:>6}  "
                        f"{1000 * statistics.median(seconds):12.0f}\n"
                    )
                    sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
