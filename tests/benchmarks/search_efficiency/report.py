"""Searches of many seeds, and the shares of random search's epochs that they needed."""

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from functools import cache
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import moocore
import numpy as np
import optuna
from scipy.stats import wilcoxon

from tests.benchmarks.search_efficiency.contestants import BASELINE, CONTESTANTS, PAIRS
from tests.benchmarks.search_efficiency.pausing import PausingReplay
from tests.benchmarks.search_efficiency.replay import METRICS, Hypervolumes, Replayed, replay
from tests.benchmarks.search_efficiency.spaces import SPACES
from tests.benchmarks.search_efficiency.studies import StudySampler
from tests.benchmarks.search_efficiency.table import Table, read

FULL_TRAININGS = 100
"""Random search's usual budget: its hypervolume after so many is what the others have to reach."""

EARLY = (9, 5)
"""After one so many-th of the budget each search's hypervolume is told; none ends before that."""


@dataclass(frozen=True)
class Setting:
    """What all searches of a comparison have in common."""

    space: str
    workers: int
    slow: str | None = None
    """The parametrization whose curves start slowly, if one does."""
    path: Path | None = None
    """Another file than the space's own."""
    noise: float = 0.0
    """Standard deviation of what is added to each accuracy that a search is told."""
    infeasible: bool = False
    """Whether about a third of the configurations diverge."""
    full_trainings: int = FULL_TRAININGS

    @property
    def table(self) -> Table:
        """What is searched."""
        return _table(self.space, self.path, self.slow, self.noise, self.infeasible)

    def __str__(self) -> str:
        conditions = [
            *([f"{self.slow} starting slowly"] if self.slow else []),
            *([f"noise of {self.noise:g}"] if self.noise else []),
            *(["a third infeasible"] if self.infeasible else []),
            f"{self.workers} workers, asynchronous" if self.workers > 1 else "1 worker",
        ]
        return ", ".join([self.space, *conditions])

    @property
    def budget(self) -> int:
        """Epochs of one search, over all workers."""
        return self.full_trainings * SPACES[self.space].epochs

    def search(
        self, contestant: str, seed: int, targets: Mapping[str, float] | None = None
    ) -> Replayed:
        """One search, as long as random search's at most; without targets, as long."""
        table = self.table
        entry = CONTESTANTS[contestant]
        sampler = entry.sampler(table, seed)
        if isinstance(sampler, StudySampler):
            sampler.workers, sampler.trials = self.workers, self.full_trainings
        if isinstance(sampler, StudySampler) and sampler.rungs:
            search = PausingReplay(table, sampler, seed=seed)
            return search.run(self.workers, self.budget, targets, self.budget // min(EARLY))
        return replay(
            table,
            sampler,
            None if entry.rule is None else entry.rule(table, seed),
            seed=seed,
            workers=self.workers,
            epochs=self.budget,
            targets=targets,
            least_epochs=self.budget // min(EARLY),
        )


@dataclass(frozen=True)
class Quartiles:
    """Of values that may be infinite."""

    low: float
    median: float
    high: float

    @classmethod
    def of(cls, values: Sequence[float]) -> "Quartiles":
        """Between order statistics, as numpy's default; infinite where one of them is."""
        ordered = sorted(values)
        return cls(*(_quantile(ordered, share) for share in (0.25, 0.5, 0.75)))

    def __str__(self) -> str:
        low, median, high = (
            f"{value:.2f}" if math.isfinite(value) else "inf"
            for value in (self.low, self.median, self.high)
        )
        return f"{median} [{low}-{high}]"


@dataclass(frozen=True)
class Paired:
    """How one search did against another with the same seeds."""

    wins: int
    losses: int
    p: float
    """Two-sided, Wilcoxon's signed-rank test; 1 where there is no difference at all."""

    @classmethod
    def of(cls, own: Sequence[float], other: Sequence[float], *, most: float) -> "Paired":
        """Of shares of epochs; a miss counts as `most`."""
        pairs = [(min(a, most), min(b, most)) for a, b in zip(own, other, strict=True)]
        differences = [a - b for a, b in pairs]
        test: Any = wilcoxon(differences) if any(differences) else None
        return cls(
            wins=sum(difference < 0 for difference in differences),
            losses=sum(difference > 0 for difference in differences),
            p=1.0 if test is None else float(test.pvalue),
        )

    def __str__(self) -> str:
        return f"{self.wins}:{self.losses} (p {self.p:.2g})"


@dataclass(frozen=True)
class Comparison:
    """All searches of a setting by contestant, the baseline's over its whole budget."""

    setting: Setting
    targets: Mapping[str, float]
    baseline_seconds: float
    searches: Mapping[str, Sequence[Replayed]]

    def epochs(self, contestant: str, metric: str) -> list[float]:
        """Epochs to the target as shares of the baseline's budget, one per seed."""
        target = self.targets[metric]
        return [
            search.epochs_to(metric, target) / self.setting.budget
            for search in self.searches[contestant]
        ]

    def seconds(self, contestant: str, metric: str) -> list[float]:
        """Simulated seconds to the target as shares of the baseline's, one per seed."""
        target = self.targets[metric]
        return [
            search.seconds_to(metric, target) / self.baseline_seconds
            for search in self.searches[contestant]
        ]

    def early(self, contestant: str, metric: str, part: int) -> float:
        """Median hypervolume after one `part`-th of the budget, as a share of the target."""
        return statistics.median(
            search.volume_at(metric, self.setting.budget / part) / self.targets[metric]
            for search in self.searches[contestant]
        )

    def lines(self) -> Iterator[str]:
        """A table in Markdown; time tells something else than epochs where workers wait."""
        timed = self.setting.workers > 1
        columns = ("epochs", "time", "misses") if timed else ("epochs", "misses")
        columns = (*columns, *(f"at 1/{part}" for part in EARLY))
        heads = [f"{metric}: {what}" for metric in METRICS for what in columns]
        yield f"| search | {' | '.join(heads)} | trials | complete |"
        yield "|---|" + "---:|" * (len(heads) + 2)
        for name, searches in self.searches.items():
            cells: list[str] = []
            for metric in METRICS:
                shares = self.epochs(name, metric)
                found = {
                    "epochs": str(Quartiles.of(shares)),
                    "time": str(Quartiles.of(self.seconds(name, metric))),
                    "misses": str(sum(map(math.isinf, shares))),
                }
                if name == BASELINE:
                    found = {"epochs": "1", "time": "1", "misses": "-"}
                found |= {f"at 1/{part}": f"{self.early(name, metric, part):.2f}" for part in EARLY}
                cells += [found[column] for column in columns]
            for counts in (
                [search.trials for search in searches],
                [search.complete for search in searches],
            ):
                cells.append(f"{statistics.median(counts):.0f}")
            yield f"| {name} | {' | '.join(cells)} |"

    def pairs(self) -> Iterator[str]:
        """Our stopping rules against the peer's, seed by seed, in Markdown."""
        yield f"| wins : losses | {' | '.join(METRICS)} |"
        yield "|---|" + "---:|" * len(METRICS)
        for own, peer in PAIRS:
            if own in self.searches and peer in self.searches:
                cells = [
                    str(Paired.of(self.epochs(own, metric), self.epochs(peer, metric), most=1.0))
                    for metric in METRICS
                ]
                yield f"| {own}, against {peer} | {' | '.join(cells)} |"


def compare(
    setting: Setting, contestants: Sequence[str], seeds: Sequence[int], *, processes: int
) -> Comparison:
    """Search with every seed; the targets are the baseline's median hypervolumes at its end."""
    spawning = get_context("spawn")
    with ProcessPoolExecutor(processes, mp_context=spawning, initializer=_quietly) as pool:
        baseline = list(pool.map(setting.search, [BASELINE] * len(seeds), seeds))
        targets = {
            metric: statistics.median(search.progress[-1].volumes[metric] for search in baseline)
            for metric in METRICS
        }
        others = [name for name in contestants if name != BASELINE]
        futures = {
            name: [pool.submit(setting.search, name, seed, targets) for seed in seeds]
            for name in others
        }
        searches = {name: [future.result() for future in futures[name]] for name in others}
    return Comparison(
        setting,
        targets,
        statistics.median(search.seconds for search in baseline),
        {BASELINE: baseline, **searches},
    )


def heading(setting: Setting, targets: Mapping[str, float]) -> Iterator[str]:
    """What is replayed, and how hard the targets are."""
    table = setting.table
    volumes = Hypervolumes(table)
    shares = ", ".join(
        f"{metric} {targets[metric] / volume:.1%}"
        for metric, volume in volumes.of_table(table).items()
    )
    throughput = (
        "measured in turn with the dense baseline's" if table.space.is_measured else "reckoned"
    )
    yield (
        f"Table: {table.configurations} configurations x {table.seeds} seed(s) x {table.epochs} "
        f"epochs on {table.space.title}, trained with torch {table.torch_version}; "
        f"throughput is {throughput}."
    )
    if table.diverged_in.any():
        yield f"Of the trainings {(table.diverged_in > 0).mean():.0%} diverge."
    yield f"Targets, as shares of the hypervolume of the whole table: {shares}."
    yield f"The whole table's front: {', '.join(front_counts(table))}."


def front_counts(table: Table) -> Iterator[str]:
    """How many points of the front each parametrization has, over all seeds."""
    best = table.accuracy[..., -1].max(axis=(1, 2))
    points = np.column_stack([1 - best, table.parameters, 1 / table.samples_per_second])
    front = np.flatnonzero(moocore.is_nondominated(points, keep_weakly=True))
    names = [table.structures[index].parametrization for index in front]
    for name in sorted(set(names), key=lambda name: (-names.count(name), name)):
        yield f"{names.count(name)} {name}"


def _quietly() -> None:
    """Without Optuna's line per trial."""
    optuna.logging.set_verbosity(optuna.logging.WARNING)


@cache
def _table(
    space: str, path: Path | None, slow: str | None, noise: float, infeasible: bool
) -> Table:
    """Read once per process."""
    table = replace(read(SPACES[space], path), noise=noise)
    table = table if slow is None else table.slowed(slow)
    return table.with_a_third_infeasible() if infeasible else table


def _quantile(ordered: Sequence[float], share: float) -> float:
    place = share * (len(ordered) - 1)
    low, high = ordered[math.floor(place)], ordered[math.ceil(place)]
    return low if low == high else low + (place - math.floor(place)) * (high - low)
