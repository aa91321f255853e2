"""Searches of many seeds, kept in a file of lines, so that they may be run a part at a time."""

import json
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass
from functools import cache
from multiprocessing import get_context
from pathlib import Path

import optuna

from tests.benchmarks.public_tables.contestants import CONTESTANTS
from tests.benchmarks.public_tables.search import search
from tests.benchmarks.public_tables.tables import PublicTable, read


@dataclass(frozen=True)
class Run:
    """One search; `rows` are its evaluations in their order."""

    table: str
    contestant: str
    seed: int
    rows: tuple[int, ...]


class Runs:
    """All runs so far; where there is a file, those in it and those that are added to it."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._known: dict[tuple[str, str, int], Run] = {}
        if path is not None and path.exists():
            for line in path.read_text().splitlines():
                found = json.loads(line)
                self._note(Run(**{**found, "rows": tuple(found["rows"])}))

    def of(self, table: str) -> Mapping[str, Mapping[int, Run]]:
        """Contestant -> seed -> its run."""
        found: dict[str, dict[int, Run]] = {}
        for (its_table, contestant, seed), run in self._known.items():
            if its_table == table:
                found.setdefault(contestant, {})[seed] = run
        return found

    def complete(
        self,
        table: str,
        contestants: Sequence[str],
        seeds: Sequence[int],
        *,
        evaluations: int,
        processes: int,
    ) -> Iterator[Run]:
        """Run what is not there yet, or not as long."""
        missing = [
            (table, contestant, seed, evaluations)
            for contestant in contestants
            for seed in seeds
            if len(self._rows(table, contestant, seed)) < evaluations
        ]
        if not missing:
            return
        spawning = get_context("spawn")
        with ProcessPoolExecutor(processes, mp_context=spawning, initializer=_quietly) as pool:
            for run in pool.map(run_one, *zip(*missing, strict=True)):
                self._note(run)
                if self._path is not None:
                    with self._path.open("a") as file:
                        file.write(json.dumps(asdict(run)) + "\n")
                yield run

    def _rows(self, table: str, contestant: str, seed: int) -> tuple[int, ...]:
        run = self._known.get((table, contestant, seed))
        return () if run is None else run.rows

    def _note(self, run: Run) -> None:
        """The longer of two runs counts."""
        if len(run.rows) >= len(self._rows(run.table, run.contestant, run.seed)):
            self._known[run.table, run.contestant, run.seed] = run


def run_one(name: str, contestant: str, seed: int, evaluations: int) -> Run:
    """One search."""
    table = _table(name)
    searcher = CONTESTANTS[contestant](table, seed)
    rows = search(table, searcher, seed=seed, evaluations=evaluations)
    return Run(name, contestant, seed, rows)


@cache
def _table(name: str) -> PublicTable:
    """Read once per process."""
    return read(name)


def _quietly() -> None:
    """Without Optuna's line per trial."""
    optuna.logging.set_verbosity(optuna.logging.WARNING)
