"""The tables of the comparison at equal bytes, and what they say, in Markdown."""

import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from scipy import stats

from tests.benchmarks.file_peers.candidates import BITS, FAMILIES, Candidate
from tests.benchmarks.file_peers.runs import Run, Runs
from tests.benchmarks.file_peers.setups import SIZES

CONFIDENCE = 0.95
_FULL = BITS[0]
_LEAST_ABOVE = 3


@dataclass(frozen=True)
class Interval:
    """A mean over seeds, and where it lies with 95 %, by Student's t."""

    mean: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.mean:+.2f} [{self.low:+.2f}, {self.high:+.2f}]"


def paired(ours: Sequence[float], theirs: Sequence[float]) -> Interval:
    """Of the differences, pair by pair; of a single pair nothing is known but the mean."""
    differences = [one - other for one, other in zip(ours, theirs, strict=True)]
    mean = statistics.fmean(differences)
    if len(differences) == 1:
        return Interval(mean, -math.inf, math.inf)
    error = statistics.stdev(differences) / len(differences) ** 0.5
    half = float(stats.t.ppf((1 + CONFIDENCE) / 2, len(differences) - 1)) * error
    return Interval(mean, mean - half, mean + half)


@dataclass(frozen=True)
class Judged:
    """A configuration's runs, one for each seed."""

    candidate: Candidate
    runs: Sequence[Run]

    @property
    def validation(self) -> tuple[float, float]:
        """Means over seeds: what configurations are chosen by."""
        return (
            statistics.fmean(run.validation for run in self.runs),
            -statistics.fmean(run.validation_loss for run in self.runs),
        )

    @property
    def tests(self) -> list[float]:
        """Test accuracy in per cent, by rising seed."""
        return [
            100 * run.test
            for run in sorted(self.runs, key=lambda run: run.seed)
            if run.test is not None
        ]

    @property
    def described(self) -> str:
        """Its name, sizes and bytes."""
        one = self.candidate
        count = f", count {one.count}" if one.count else ""
        return f"{one.camp}, n {one.width}{count}: {self.runs[0].bytes:,}"


def judged(runs: Sequence[Run]) -> list[Judged]:
    """By configuration, over the seeds that all of them were trained with."""
    by_candidate: dict[Candidate, dict[int, Run]] = {}
    for run in runs:
        by_candidate.setdefault(run.candidate, {})[run.seed] = run
    if not by_candidate:
        return []
    seeds = set.intersection(*(set(found) for found in by_candidate.values()))
    return [
        Judged(candidate, [found[seed] for seed in sorted(seeds)])
        for candidate, found in by_candidate.items()
        if seeds
    ]


def report(runs: Runs) -> str:
    """The tables of each task, and whether the target is reached."""
    tasks = dict.fromkeys(run.task for run in runs.all if run.stage == "judge")
    return "\n".join(line for task in tasks for line in (*_table(runs, task), *_after(runs, task)))


def _table(runs: Runs, task: str) -> Iterator[str]:
    rows = {size: judged(runs.of(task, size, "judge")) for size in SIZES}
    yield f"### {task}"
    yield ""
    yield (
        "| KB | seeds | dense fp32 | dense int8 | dense int4 | best of dense int8, int4: bytes | "
        "best of ours: bytes | validation, dense | ours | test, dense | ours | ours ahead |"
    )
    yield "|---:|---:|---:|---:|---:|---|---|---:|---:|---:|---:|---|"
    ahead: dict[int, Interval] = {}
    for size, found in rows.items():
        rivals = [one for one in found if one.candidate.is_dense and one.candidate.bits != _FULL]
        ours = [one for one in found if one.candidate.family in FAMILIES]
        if not (rivals and ours):
            continue
        rival, mine = (max(camp, key=lambda one: one.validation) for camp in (rivals, ours))
        ahead[size] = paired(mine.tests, rival.tests)
        dense = " | ".join(_dense_cell(found, bits) for bits in BITS)
        yield (
            f"| {size} | {len(mine.runs)} | {dense} | {rival.described} | {mine.described} | "
            f"{100 * rival.validation[0]:.2f} | {100 * mine.validation[0]:.2f} | "
            f"{statistics.fmean(rival.tests):.2f} | {statistics.fmean(mine.tests):.2f} | "
            f"{ahead[size]} |"
        )
    yield ""
    yield verdict(ahead)
    yield ""


def _dense_cell(found: Sequence[Judged], bits: int) -> str:
    for one in found:
        if one.candidate.is_dense and one.candidate.bits == bits:
            return f"{statistics.fmean(one.tests):.2f} (n {one.candidate.width})"
    return "–"


def verdict(ahead: dict[int, Interval]) -> str:
    """Whether ours are at no size below, and at three or more above, beyond the interval."""
    below = [size for size, one in ahead.items() if one.high < 0]
    above = [size for size, one in ahead.items() if one.low > 0]
    missing = [size for size in SIZES if size not in ahead]
    so_far = not below and len(above) >= _LEAST_ABOVE
    if so_far and missing:
        found = f"reached so far, and **not shown** at {_sizes(missing)}"
    else:
        found = "reached" if so_far else "**not reached**"
    return (
        f"Of {len(ahead)} sizes ours are above beyond the interval at {_sizes(above)}, below at "
        f"{_sizes(below)}; not run are {_sizes(missing)}. The target, below at none and above at "
        f"three or more, is {found}."
    )


def _sizes(sizes: Sequence[int]) -> str:
    return f"{len(sizes)} ({', '.join(map(str, sizes))} KB)" if sizes else "none"


def _after(runs: Runs, task: str) -> Iterator[str]:
    names = dict.fromkeys(
        run.family for run in runs.all if (run.task, run.stage) == (task, "after")
    )
    if not names:
        return
    yield "| quantized after training | " + " | ".join(f"{size} KB" for size in SIZES) + " |"
    yield "|---|" + "---|" * len(SIZES)
    for name in names:
        cells: list[str] = []
        for size in SIZES:
            found = [run for run in runs.of(task, size, "after") if run.family == name]
            tests = [100 * run.test for run in found if run.test is not None]
            cells.append(
                f"{statistics.fmean(tests):.2f} (n {found[0].width}: {found[0].bytes:,})"
                if found
                else "–"
            )
        yield f"| {name} | " + " | ".join(cells) + " |"
    yield ""
