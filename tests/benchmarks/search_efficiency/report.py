"""Searches of many seeds, and the shares of random search's epochs that they needed."""

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import cache
from multiprocessing import get_context
from pathlib import Path

import optuna

from tests.benchmarks.search_efficiency.contestants import BASELINE, CONTESTANTS
from tests.benchmarks.search_efficiency.replay import METRICS, Hypervolumes, Replayed, replay
from tests.benchmarks.search_efficiency.table import Table, read

FULL_TRAININGS = 100
"""Random search's budget: its hypervolume after so many is what the others have to reach."""


@dataclass(frozen=True)
class Setting:
    """What all searches of a comparison have in common."""

    path: Path
    workers: int
    full_trainings: int = FULL_TRAININGS

    def search(
        self, contestant: str, seed: int, targets: Mapping[str, float] | None = None
    ) -> Replayed:
        """One search, as long as random search's at most; without targets, as long."""
        table = _table(self.path)
        entry = CONTESTANTS[contestant]
        return replay(
            table,
            entry.sampler(table, seed),
            entry.rule_for(table, seed),
            seed=seed,
            workers=self.workers,
            epochs=self.budget,
            targets=targets,
        )

    @property
    def budget(self) -> int:
        """Epochs of one search, over all workers."""
        return self.full_trainings * _table(self.path).epochs


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

    def lines(self) -> Iterator[str]:
        """A table in Markdown; time tells something else than epochs where workers wait."""
        timed = self.setting.workers > 1
        columns = ("epochs", "time", "misses") if timed else ("epochs", "misses")
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
                cells += [found[column] for column in columns]
            for counts in (
                [search.trials for search in searches],
                [search.complete for search in searches],
            ):
                cells.append(f"{statistics.median(counts):.0f}")
            yield f"| {name} | {' | '.join(cells)} |"


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


def heading(path: Path, targets: Mapping[str, float]) -> Iterator[str]:
    """What is replayed, and how hard the targets are."""
    table = _table(path)
    best = Hypervolumes(table).of_table(table)
    shares = ", ".join(f"{metric} {targets[metric] / best[metric]:.1%}" for metric in METRICS)
    configurations = table.accuracy.shape[0] * table.accuracy.shape[1]
    yield (
        f"Table: {configurations} configurations x {table.seeds} seed(s) x {table.epochs} epochs "
        f"on digits (8 rows), trained with torch {table.torch_version}. Throughput is reckoned "
        "from multiply-adds, so that a sampler that reckons likewise knows it exactly."
    )
    yield f"Targets, as shares of the hypervolume of the whole table: {shares}."


def _quietly() -> None:
    """Without Optuna's line per trial."""
    optuna.logging.set_verbosity(optuna.logging.WARNING)


@cache
def _table(path: Path) -> Table:
    """Read once per process."""
    return read(path)


def _quantile(ordered: Sequence[float], share: float) -> float:
    place = share * (len(ordered) - 1)
    low, high = ordered[math.floor(place)], ordered[math.ceil(place)]
    return low if low == high else low + (place - math.floor(place)) * (high - low)
