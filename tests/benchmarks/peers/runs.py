"""Trained contestants, kept line by line in a file, so that what is known is not trained again."""

import json
import math
import os
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path

from torch import nn

from search.tasks import DataSources, Split, Splits
from tests.benchmarks.peers import ours, rivals
from tests.benchmarks.peers.contestant import Contestant, Given, numbers_in
from tests.benchmarks.peers.settings import SETTINGS, Setting, Task
from tests.benchmarks.peers.training import answers_of, fit

ORIGINAL = "original"
CONTESTANTS = {**ours.CONTESTANTS, **rivals.CONTESTANTS}


@dataclass(frozen=True, kw_only=True)
class Run:
    """A contestant of a setting, trained once with one learning rate."""

    setting: str
    share: float
    """Numbers that are allowed, as a share of the original's in the same matrices."""
    contestant: str
    what: str
    seed: int
    rate: float
    numbers: int
    """In the compressed matrices."""
    parameters: int
    """In all."""
    at_start: float
    """Test accuracy of the conversion, before any training."""
    validation: float
    test: float
    epoch: int
    seconds: float

    @property
    def key(self) -> tuple[str, float, str, int, float]:
        """What it is a run of."""
        return self.setting, self.share, self.contestant, self.seed, self.rate


class Runs:
    """The runs in a file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.all: list[Run] = []
        if path.exists():
            self.all = [Run(**json.loads(line)) for line in path.read_text().splitlines()]

    def find(self, setting: str, share: float, contestant: str, seed: int) -> list[Run]:
        """Those of all learning rates."""
        wanted = (setting, share, contestant, seed)
        return [run for run in self.all if run.key[:4] == wanted]

    def best(self, setting: str, share: float, contestant: str, seed: int) -> Run | None:
        """The one whose validation was best, of equal ones the slower learner."""
        found = self.find(setting, share, contestant, seed)
        return max(found, key=lambda run: (run.validation, -run.rate), default=None)

    def add(self, run: Run) -> Run:
        """Keep a run."""
        self.all.append(run)
        with self._path.open("a") as file:
            file.write(json.dumps(asdict(run)) + "\n")
        return run


def train_all(
    runs: Runs, setting: Setting, share: float, seed: int, names: Sequence[str]
) -> Iterator[Run]:
    """Train what the file lacks: the original, then each contestant.

    With the first seed every contestant tries all learning rates, with others the one that
    validation chose; who took no part with the first takes none with others.
    """
    lacking = {name: _lacking_rates(runs, setting, share, name, seed) for name in names}
    if not any(lacking.values()):
        return
    splits = splits_of(setting.name)
    original = setting.original(seed)
    yield from _trained_original(runs, setting, original, splits, seed)
    weights = setting.weights(original).values()
    numbers = int(share * sum(weight.numel() for weight in weights))
    answers = answers_of(original, splits.train)
    for name, rates in lacking.items():
        for rate in rates:
            begun = time.perf_counter()
            given = Given(
                setting=setting, original=original, numbers=numbers, train=splits.train, seed=seed
            )
            contestant = CONTESTANTS[name](given)
            if contestant is None:
                break
            epochs = setting.fine_tuning
            trained = fit(
                contestant.module,
                splits,
                batch_size=setting.batch_size,
                epochs=epochs + (setting.epochs if contestant.starts_untrained else 0),
                rate=rate,
                seed=seed,
                answers=answers,
                before_epoch=contestant.before_epoch,
                counts_from=_first_epoch(contestant, epochs),
            )
            counted = contestant.numbers()
            yield runs.add(
                Run(
                    setting=setting.name,
                    share=share,
                    contestant=name,
                    what=contestant.what,
                    seed=seed,
                    rate=rate,
                    numbers=counted,
                    parameters=counted + contestant.others,
                    seconds=round(time.perf_counter() - begun, 1),
                    **asdict(trained),
                )
            )


def _trained_original(
    runs: Runs, setting: Setting, original: nn.Module, splits: Splits[Split], seed: int
) -> Iterator[Run]:
    """Train it in place; its numbers follow from the seed, so that it is kept only once."""
    begun = time.perf_counter()
    rate = setting.original_rate
    trained = fit(
        original,
        splits,
        batch_size=setting.batch_size,
        epochs=setting.epochs,
        rate=rate,
        seed=seed,
        counts_from=1,
    )
    if runs.find(setting.name, 1.0, ORIGINAL, seed):
        return
    yield runs.add(
        Run(
            setting=setting.name,
            share=1.0,
            contestant=ORIGINAL,
            what=f"width {setting.width}",
            seed=seed,
            rate=rate,
            numbers=sum(weight.numel() for weight in setting.weights(original).values()),
            parameters=numbers_in(original),
            seconds=round(time.perf_counter() - begun, 1),
            **asdict(trained),
        )
    )


def _lacking_rates(runs: Runs, setting: Setting, share: float, name: str, seed: int) -> list[float]:
    """The learning rates that a contestant has yet to be trained with."""
    rates: Sequence[float] = setting.rates
    if seed != 0:
        chosen = runs.best(setting.name, share, name, 0)
        rates = () if chosen is None else (chosen.rate,)
    known = {run.rate for run in runs.find(setting.name, share, name, seed)}
    return [rate for rate in rates if rate not in known]


def _first_epoch(contestant: Contestant, epochs: int) -> int:
    """The first epoch at whose end the contestant has its size."""
    if contestant.starts_untrained:
        return 1
    return math.ceil(contestant.counts_from_share * epochs)


@cache
def splits_of(name: str) -> Splits[Split]:
    """A setting's data, read once per process."""
    return samples_of(SETTINGS[name].task)


def samples_of(task: Task) -> Splits[Split]:
    """A task's data, from the folder `REFLECTORY_DATA` where it is."""
    folder = os.environ.get("REFLECTORY_DATA")
    with tempfile.TemporaryDirectory() as cache_folder:
        sources = DataSources(
            cache=Path(cache_folder), folder=None if folder is None else Path(folder)
        )
        found = task.resolved(sources).load(sources)
        parts = found.train, found.validation, found.test
        # The cache's arrays are mapped into memory and go with their folder.
        return Splits(*(Split(part.x.clone(), part.y.clone()) for part in parts))
