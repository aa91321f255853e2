"""The tables of the comparison, and what they say, in Markdown."""

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from tests.benchmarks.peers import ours
from tests.benchmarks.peers.runs import ORIGINAL, Run, Runs


@dataclass(frozen=True)
class Row:
    """A contestant's runs: of each seed the one that validation chose."""

    name: str
    runs: Sequence[Run]
    originals: Mapping[int, Run]

    @property
    def is_ours(self) -> bool:
        """Whether this project made it."""
        return self.name in ours.CONTESTANTS

    @property
    def lost(self) -> dict[int, float]:
        """Points of test accuracy that the original of the same seed is ahead by."""
        return {run.seed: 100 * (self.originals[run.seed].test - run.test) for run in self.runs}

    def mean(self, field: str) -> float:
        """A mean over seeds, in percent."""
        return 100 * statistics.mean(getattr(run, field) for run in self.runs)


def report(runs: Runs) -> str:
    """A table for each setting and share."""
    tables = {(run.setting, run.share) for run in runs.all if run.contestant != ORIGINAL}
    return "\n".join(line for table in sorted(tables) for line in _table(runs, *table))


def _table(runs: Runs, setting: str, share: float) -> Iterator[str]:
    originals = {
        run.seed: run for run in runs.all if run.setting == setting and run.contestant == ORIGINAL
    }
    found = [run for run in runs.all if (run.setting, run.share) == (setting, share)]
    names = dict.fromkeys(run.contestant for run in found if run.contestant != ORIGINAL)
    rows = [_row(runs, setting, share, name, originals) for name in names]
    first = next(iter(originals.values()))
    tests = [100 * run.test for run in originals.values()]
    yield f"### {setting}: {share:g} of {first.numbers:,} numbers"
    yield ""
    yield (
        f"The original has {first.what} and {first.parameters:,} parameters; test "
        f"{_spread(tests, '.2f')} %, over {len(tests)} seeds."
    )
    yield ""
    yield "| contestant | counts | numbers | parameters | at start | validation | test | lost |"
    yield "|---|---|---|---|---|---|---|---|"
    for row in sorted(rows, key=lambda row: -row.mean("test")):
        one = row.runs[0]
        name = f"**{row.name}**" if row.is_ours else row.name
        yield (
            f"| {name} | {one.what} | {one.numbers:,} | {one.parameters:,} "
            f"| {row.mean('at_start'):.2f} | {row.mean('validation'):.2f} "
            f"| {row.mean('test'):.2f} | {_spread(list(row.lost.values()), '+.2f')} |"
        )
    yield ""
    yield from _verdict(rows)
    yield ""


def _row(runs: Runs, setting: str, share: float, name: str, originals: Mapping[int, Run]) -> Row:
    found = [runs.best(setting, share, name, seed) for seed in sorted(originals)]
    return Row(name, [run for run in found if run is not None], originals)


def _verdict(rows: Sequence[Row]) -> Iterator[str]:
    """The best by validation of both camps, seed against seed."""
    camps = [[row for row in rows if row.is_ours is ours_or_not] for ours_or_not in (True, False)]
    if not all(camps):
        return
    mine, rival = (max(camp, key=lambda row: row.mean("validation")) for camp in camps)
    ahead = [rival.lost[seed] - lost for seed, lost in mine.lost.items() if seed in rival.lost]
    yield (
        f"Chosen by validation: {mine.name} loses {_spread(list(mine.lost.values()), '+.2f')} "
        f"points, the best rival, {rival.name}, {_spread(list(rival.lost.values()), '+.2f')}; seed "
        f"by seed ours is ahead by {_spread(ahead, '+.2f')}{_error(ahead)}."
    )


def _error(values: Sequence[float]) -> str:
    """The standard error of the mean."""
    if len(values) < 2:
        return ""
    error = statistics.stdev(values) / len(values) ** 0.5
    return f", a mean over {len(values)} with a standard error of {error:.2f}"


def _spread(values: Sequence[float], form: str) -> str:
    """The mean, and the least and the largest where there are several."""
    mean = format(statistics.mean(values), form)
    return mean if len(values) < 2 else f"{mean} [{min(values):{form}}, {max(values):{form}}]"
