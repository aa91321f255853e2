"""What searches of a public table reached, in Markdown."""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from tests.benchmarks.public_tables.contestants import OURS
from tests.benchmarks.public_tables.runs import Run
from tests.benchmarks.public_tables.search import METRICS, Hypervolumes
from tests.benchmarks.public_tables.tables import PublicTable
from tests.benchmarks.search_efficiency.report import Paired, Quartiles

Volumes = Mapping[int, float]
"""Hypervolume by seed, as a percentage of the whole table's."""


class Report:
    """Hypervolumes after some numbers of evaluations; a seed counts where it has as many."""

    def __init__(
        self,
        table: PublicTable,
        runs: Mapping[str, Mapping[int, Run]],
        seeds: Sequence[int],
        budgets: Sequence[int],
    ) -> None:
        self._table = table
        self._hypervolumes = Hypervolumes(table)
        self._columns = [(metric, budget) for budget in budgets for metric in METRICS]
        self._volumes: dict[str, dict[tuple[str, int], Volumes]] = {}
        for contestant, by_seed in runs.items():
            found: dict[tuple[str, int], dict[int, float]] = {at: {} for at in self._columns}
            for seed in seeds:
                rows = by_seed[seed].rows if seed in by_seed else ()
                for budget in budgets:
                    if len(rows) < budget:
                        continue
                    volumes = self._hypervolumes.of(rows[:budget])
                    for metric in METRICS:
                        found[metric, budget][seed] = 100 * volumes[metric]
            self._volumes[contestant] = {**found}

    def heading(self) -> Iterator[str]:
        """What was searched."""
        table, front = self._table, self._hypervolumes.front
        yield (
            f"{table.title}: {len(table.values)} configurations, objectives "
            f"{', '.join(table.objectives)}; {len(front)} of them are the whole table's front."
        )

    def lines(self) -> Iterator[str]:
        """By contestant."""
        heads = [f"{metric}, {budget}" for metric, budget in self._columns]
        yield f"| search | {' | '.join(heads)} | seeds |"
        yield "|---|" + "---:|" * (len(heads) + 1)
        for contestant, volumes in self._volumes.items():
            cells = [_quartiles(list(volumes[at].values())) for at in self._columns]
            budgets = dict.fromkeys(budget for _, budget in self._columns)
            seeds = [str(len(volumes[METRICS[0], budget])) for budget in budgets]
            yield f"| {contestant} | {' | '.join(cells)} | {', '.join(seeds)} |"

    def pairs(self) -> Iterator[str]:
        """Ours against every other, seed by seed."""
        heads = [f"{metric}, {budget}" for metric, budget in self._columns]
        yield f"| wins : losses | {' | '.join(heads)} |"
        yield "|---|" + "---:|" * len(heads)
        for own in OURS:
            for other in self._volumes:
                if own in self._volumes and other != own:
                    cells = [self._paired(own, other, at) for at in self._columns]
                    yield f"| {own}, against {other} | {' | '.join(cells)} |"

    def _paired(self, own: str, other: str, at: tuple[str, int]) -> str:
        mine, theirs = self._volumes[own][at], self._volumes[other][at]
        seeds = sorted(mine.keys() & theirs.keys())
        if not seeds:
            return "-"
        # The smaller one wins a `Paired`.
        return str(
            Paired.of(
                [-mine[seed] for seed in seeds], [-theirs[seed] for seed in seeds], most=np.inf
            )
        )


def _quartiles(values: Sequence[float]) -> str:
    return str(Quartiles.of(values)) if values else "-"
