"""What was measured, as one JSON file that is checked in."""

import json
import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from scipy.stats import t

from tests.benchmarks.showcase.networks import ORIGINAL, Effort, Run, half_width
from tests.benchmarks.showcase.speed import Files, Speed

FILE = Path(__file__).parents[3] / "deploy/docs/benchmarks/showcase.json"

_NORMAL_95_ONE_SIDED = 1.645


@dataclass(frozen=True, kw_only=True)
class Measured:
    """A member's speeds and files; they do not depend on the seed."""

    cell: str
    size: int
    form: str
    files: Files
    speeds: tuple[Speed, ...]

    def speed(self, runtime: str, batch: int) -> Speed:
        """The one of a runtime and a batch size."""
        return next(one for one in self.speeds if (one.runtime, one.batch) == (runtime, batch))


@dataclass(kw_only=True)
class Results:
    """Everything in the file."""

    task: str
    effort: Effort
    day: str
    machine: Sequence[str]
    runs: list[Run] = field(default_factory=list)
    measured: list[Measured] = field(default_factory=list)

    def networks(self) -> list[tuple[str, int]]:
        """Cells and sizes, the largest first."""
        found = dict.fromkeys(run.network for run in self.runs)
        return sorted(found, key=lambda network: (-network[1], network[0]))

    def of(self, network: tuple[str, int], form: str) -> list[Run]:
        """The runs of all seeds."""
        return [run for run in self.runs if run.network == network and run.form == form]

    def forms(self, network: tuple[str, int]) -> list[str]:
        """What a network was compressed to."""
        found = dict.fromkeys(run.form for run in self.runs if run.network == network)
        return [form for form in found if form != ORIGINAL]

    def speeds_of(self, network: tuple[str, int], form: str) -> Measured:
        """A member's speeds.

        Raises:
            StopIteration: it was not measured.
        """
        return next(
            one for one in self.measured if ((one.cell, one.size), one.form) == (network, form)
        )

    def chosen(self, network: tuple[str, int]) -> str:
        """The member with the fewest parameters within noise of the original, by validation.

        Where none is, the best one.
        """
        best = self.of(network, ORIGINAL)
        forms = self.forms(network)
        near = [form for form in forms if _is_within_noise(best, self.of(network, form))]
        if near:
            return min(near, key=lambda form: self.of(network, form)[0].parameters)
        return max(forms, key=lambda form: _mean(run.validation for run in self.of(network, form)))

    def has_speed(self, cell: str, size: int, form: str) -> bool:
        """Whether it was measured."""
        return any((one.cell, one.size, one.form) == (cell, size, form) for one in self.measured)

    def has_run(self, cell: str, size: int, form: str, seed: int) -> bool:
        """Whether it was trained."""
        return any(run.seed == seed for run in self.of((cell, size), form))

    def add_speed(
        self, cell: str, size: int, form: str, speeds: Iterable[Speed], files: Files
    ) -> None:
        """Keep what was measured."""
        one = Measured(cell=cell, size=size, form=form, files=files, speeds=tuple(speeds))
        self.measured.append(one)

    def add_runs(self, runs: Iterable[Run]) -> None:
        """Keep what was trained."""
        self.runs += runs

    def store(self) -> None:
        """Write the file."""
        FILE.write_text(json.dumps(asdict(self), indent=1) + "\n")


def begun(*, task: str, effort: Effort, day: str, machine: Sequence[str]) -> Results:
    """What is there, if it was trained as much on the same task; else nothing."""
    if FILE.is_file():
        found = load()
        if (found.task, found.effort) == (task, effort):
            return found
    return Results(task=task, effort=effort, day=day, machine=machine)


def load() -> Results:
    """The file."""
    document: Mapping[str, Any] = json.loads(FILE.read_text())
    return Results(
        task=document["task"],
        effort=Effort(**document["effort"]),
        day=document["day"],
        machine=document["machine"],
        runs=[Run(**run) for run in document["runs"]],
        measured=[
            Measured(
                cell=one["cell"],
                size=one["size"],
                form=one["form"],
                files=Files(**one["files"]),
                speeds=tuple(Speed(**speed) for speed in one["speeds"]),
            )
            for one in document["measured"]
        ],
    )


def accuracy(runs: Sequence[Run]) -> tuple[float, float]:
    """Mean test accuracy and half of its 95 % interval.

    Over seeds by Student's t where there are three or more, else over the test samples.
    """
    values = [run.test for run in runs]
    if len(values) < 3:
        mean = _mean(values)
        return mean, half_width(mean, runs[0].test_samples)
    error = statistics.stdev(values) / math.sqrt(len(values))
    return _mean(values), float(t.ppf(0.975, len(values) - 1)) * error


def _is_within_noise(original: Sequence[Run], member: Sequence[Run]) -> bool:
    before, after = (
        _mean(run.validation for run in original),
        _mean(run.validation for run in member),
    )
    samples = original[0].validation_samples
    variance = sum(value * (1 - value) / samples for value in (before, after))
    return before - after <= _NORMAL_95_ONE_SIDED * math.sqrt(variance)


def _mean(values: Iterable[float]) -> float:
    return statistics.fmean(values)
