"""`python -m tests.benchmarks.ucr_outside`: what other methods reach on the papers' UCR sets.

The papers compare recurrent networks with each other. Beside their best printed accuracy stand
here the nearest neighbour (Euclidean distance, which needs the whole training part) and MiniRocket
(9,996 random features and a ridge classifier), both on the same TRAIN and TEST. Neither needs a
validation part, so each learns from all of TRAIN. MiniRocket is aeon's (`pip install aeon`), over
several seeds; without aeon its column is left out. `REFLECTORY_DATA` names the folder of the
archive's files.
"""

import argparse
import os
import shlex
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from importlib import metadata
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from sklearn.neighbors import KNeighborsClassifier

from search.documents.papers import PrintedValue
from search.errors import DataError
from search.papers.row import Row
from search.papers.tables import UCR
from search.tasks import Ucr
from search.tasks.samples import Split
from search.tasks.sources import DataSources
from tests.benchmarks.cpu.machine import described

_Array: TypeAlias = np.ndarray[Any, Any]
_Classifier: TypeAlias = Callable[[int], Any]
"""Something with `fit` and `score`, made of a seed."""


@dataclass(frozen=True)
class _Series:
    """A data set: series `[samples, length]`, and classes `[samples]`."""

    train: tuple[_Array, _Array]
    test: tuple[_Array, _Array]


@dataclass(frozen=True)
class _Found:
    """What a method came to on one set."""

    accuracies: tuple[float, ...]
    numbers: int
    """That it stores to answer."""
    seconds: float
    """Of the processor, of one fit and its answers."""

    @property
    def mean(self) -> float:
        return statistics.fmean(self.accuracies)


@dataclass(frozen=True)
class _Set:
    """A data set's rows of the paper, and what other methods came to."""

    name: str
    best: Row
    printed: float
    outside: dict[str, _Found]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.ucr_outside")
    parser.add_argument("--seeds", type=int, default=5, help="of MiniRocket")
    parser.add_argument("--sets", nargs="+", help="names of data sets; all of the table otherwise")
    given = parser.parse_args()
    folder = os.environ.get("REFLECTORY_DATA")
    if folder is None:
        raise SystemExit("REFLECTORY_DATA is not set; it names the folder of the archive's files")
    found: list[_Set] = []
    for name, rows in _by_set().items():
        if given.sets and name not in given.sets:
            continue
        try:
            found.append(_measured(name, rows, Path(folder), given.seeds))
        except DataError as error:
            sys.stderr.write(f"{name} is left out: {error}\n")
            continue
        sys.stderr.write(f"{name}: {found[-1].outside}\n")
    if not found:
        raise SystemExit(f"no data set of the table is in {folder}")
    sys.stdout.write("\n".join([*_head(), *_table(found), "", *_summary(found), ""]))


def _by_set() -> dict[str, list[Row]]:
    sets: dict[str, list[Row]] = {}
    for row in UCR.rows:
        sets.setdefault(row.group, []).append(row)
    return sets


def _measured(name: str, rows: Sequence[Row], folder: Path, seeds: int) -> _Set:
    task = rows[0].task
    assert isinstance(task, Ucr), task
    series = _series(task, DataSources(folder=folder, cache=folder))
    best = max(rows, key=_printed)
    methods: dict[str, _Found] = {"1-NN": _of(_nearest, [0], series, _stored_series)}
    rocket = _mini_rocket()
    if rocket is not None:
        methods["MiniRocket"] = _of(rocket, range(seeds), series, _stored_features)
    return _Set(name, best, _printed(best), methods)


def _printed(row: Row) -> float:
    assert isinstance(row.claim, PrintedValue), row.key
    return row.claim.value


def _series(task: Ucr, sources: DataSources) -> _Series:
    """The set as one network reads it, the validation part put back."""
    parts = task.resolved(sources).load(sources)
    x, y = zip(_flat(parts.train), _flat(parts.validation), strict=True)
    return _Series(train=(np.concatenate(x), np.concatenate(y)), test=_flat(parts.test))


def _flat(part: Split) -> tuple[_Array, _Array]:
    return part.x.flatten(1).numpy(), part.y.numpy()


def _of(
    method: _Classifier,
    seeds: Sequence[int],
    series: _Series,
    stored: Callable[[_Series], int],
) -> _Found:
    accuracies: list[float] = []
    seconds: list[float] = []
    for seed in seeds:
        begun = time.process_time()
        classifier = method(seed)
        classifier.fit(*series.train)
        accuracies.append(float(classifier.score(*series.test)))
        seconds.append(time.process_time() - begun)
    return _Found(tuple(accuracies), stored(series), statistics.median(seconds))


def _nearest(seed: int) -> Any:
    return KNeighborsClassifier(n_neighbors=1)


def _stored_series(series: _Series) -> int:
    return series.train[0].size


def _mini_rocket() -> _Classifier | None:
    try:
        # Only this benchmark compares with it.
        from aeon.classification.convolution_based import (  # pyright: ignore[reportMissingImports]
            MiniRocketClassifier,
        )
    except ImportError:
        return None
    return lambda seed: MiniRocketClassifier(random_state=seed)


def _stored_features(series: _Series) -> int:
    """A bias of each feature, its mean and scale, and the ridge classifier's weights."""
    classes = len(np.unique(series.train[1]))
    outputs = 1 if classes == 2 else classes
    return _FEATURES * 3 + (_FEATURES + 1) * outputs


_FEATURES = 9_996


def _head() -> Iterator[str]:
    yield "# Other methods on the papers' UCR sets"
    yield ""
    yield f"- `{shlex.join(['python', '-m', 'tests.benchmarks.ucr_outside', *sys.argv[1:]])}`"
    yield f"- {datetime.now().astimezone():%Y-%m-%d}"
    yield from (f"- {line}" for line in described())
    try:
        yield f"- aeon {metadata.version('aeon')}, scikit-learn {metadata.version('scikit-learn')}"
    except metadata.PackageNotFoundError:
        yield "- aeon is not installed: MiniRocket is left out"
    yield ""


def _table(found: Sequence[_Set]) -> Iterator[str]:
    names = list(found[0].outside)
    yield (
        "| data set | papers' best, printed | its parameters | "
        + " | ".join(f"{name} | numbers stored | seconds" for name in names)
        + " |"
    )
    yield "| --- | --- | ---: |" + " ---: |" * (3 * len(names))
    for one in found:
        cells = [
            f"{_accuracy(one.outside[name])} | {one.outside[name].numbers:,} | "
            f"{one.outside[name].seconds:.2g}"
            for name in names
        ]
        best = f"{one.printed:.3f} ({one.best.system.name}) | {one.best.parameters:,}"
        yield f"| {one.name} | {best} | {' | '.join(cells)} |"


def _accuracy(found: _Found) -> str:
    if len(found.accuracies) == 1:
        return f"{found.mean:.3f}"
    return f"{found.mean:.3f} ± {statistics.stdev(found.accuracies):.3f}"


def _summary(found: Sequence[_Set]) -> Iterator[str]:
    """Means over the sets whose printed numbers are a predictor's; the others are named."""
    judged = [one for one in found if one.best.unreachable is None]
    left_out = [one.name for one in found if one.best.unreachable is not None]
    printed = statistics.fmean(one.printed for one in judged)
    yield (
        f"Mean over {len(judged)} sets: papers' best {printed:.3f}"
        + "".join(
            f", {name} {statistics.fmean(one.outside[name].mean for one in judged):.3f}"
            for name in found[0].outside
        )
        + "."
    )
    for name in found[0].outside:
        wins = sum(one.outside[name].mean > one.printed for one in judged)
        ties = sum(one.outside[name].mean == one.printed for one in judged)
        yield f"{name} is better on {wins}, equal on {ties}, worse on {len(judged) - wins - ties}."
    if left_out:
        yield f"Left out of the means, for the print is a constant answer: {', '.join(left_out)}."


if __name__ == "__main__":
    main()
