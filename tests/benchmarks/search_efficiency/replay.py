"""A search replayed on the table: trials train epoch by epoch on one or several workers."""

import heapq
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Protocol

import moocore
import numpy as np
from numpy.typing import NDArray

from tests.benchmarks.search_efficiency.table import Table

METRICS = ("M1", "M2")
"""Two hypervolumes of fully trained trials: accuracy from 0.8, and the logarithm of its error from
0.5, which is the finer one; both with log parameters and log throughput."""

_REFERENCE_ACCURACY = {"M1": 0.8, "M2": 0.5}
_MARGIN = 1.1


@dataclass(frozen=True)
class Configuration:
    """A row of the table: what a sampler chooses."""

    structure: int
    learning_rate: int


class State(Enum):
    """Where a trial stands."""

    WAITING = "waiting"
    RUNNING = "running"
    PAUSED = "paused"
    COMPLETE = "complete"
    STOPPED = "stopped"
    DIVERGED = "diverged"
    """Its training came to nothing."""
    GONE = "gone"
    """It waited, and was never trained."""


@dataclass
class Trial:
    """One training; `repeat` says which of the table's seeds it has."""

    number: int
    configuration: Configuration
    repeat: int
    accuracy: list[float] = field(default_factory=list[float])
    """Of the best epoch so far, after each epoch trained, as the search is told."""
    state: State = State.RUNNING
    ended_after: int | None = None
    """Epochs that the search had trained in all when it ended; None while it runs."""
    stretch: dict[str, Any] | None = None
    """What it was last chosen for, see `TrialRecord.stretch`."""
    repeats: int | None = None
    """The trial that has the same configuration."""


class Sampler(Protocol):
    """Chooses configurations."""

    def propose(self, trials: Sequence[Trial]) -> Configuration:
        """The next one, given every trial so far; it may have been trained before."""
        ...

    def refuse(self) -> None:
        """The proposal's seeds are used up: it failed, and another will be asked for."""
        ...

    def ended(self, trial: Trial) -> None:
        """A trial is complete, stopped or diverged."""
        ...


class Rule(Protocol):
    """Stops trials."""

    def stops(self, trials: Sequence[Trial], trial: Trial) -> bool:
        """Whether a running trial should end after the epoch that it has just trained."""
        ...


@dataclass(frozen=True)
class Progress:
    """Where a search stood when a trial had been trained to its end."""

    epochs: int
    seconds: float
    volumes: Mapping[str, float]


@dataclass(frozen=True)
class Replayed:
    """A search that reached its targets or the end of its budget."""

    progress: tuple[Progress, ...]
    trials: int
    complete: int
    seconds: float
    """On the simulated clock."""

    def epochs_to(self, metric: str, target: float) -> float:
        """Epochs until the target was reached; infinite where it was not."""
        return next((at.epochs for at in self.progress if at.volumes[metric] >= target), math.inf)

    def volume_at(self, metric: str, epochs: float) -> float:
        """Hypervolume after so many epochs, which the search has to have trained."""
        done = (at.volumes[metric] for at in self.progress if at.epochs <= epochs)
        return max(done, default=0.0)

    def seconds_to(self, metric: str, target: float) -> float:
        """Simulated seconds until the target was reached; infinite where it was not."""
        return next((at.seconds for at in self.progress if at.volumes[metric] >= target), math.inf)


class Hypervolumes:
    """The metrics' hypervolumes of structures at accuracies."""

    def __init__(self, table: Table) -> None:
        self._costs = np.stack(
            [np.log(table.parameters), -np.log(table.samples_per_second)], axis=1
        )
        self._worst_cost = self._costs.max(axis=0) + math.log(_MARGIN)
        self._least_error = table.least_error

    def of(self, structures: Sequence[int], accuracies: Sequence[float]) -> dict[str, float]:
        """By metric; 0 where there is nothing."""
        if not structures:
            return dict.fromkeys(METRICS, 0.0)
        costs, errors = self._costs[list(structures)], 1 - np.asarray(accuracies)
        return {
            metric: float(
                moocore.hypervolume(
                    np.column_stack([self._axis(metric, errors), costs]),
                    ref=[*self._axis(metric, np.array([1 - reference])), *self._worst_cost],
                )
            )
            for metric, reference in _REFERENCE_ACCURACY.items()
        }

    def of_table(self, table: Table) -> dict[str, float]:
        """By metric, of everything in the table: no search can have more."""
        best = table.accuracy[..., -1].max(axis=(1, 2))
        return self.of(range(len(best)), best.tolist())

    def _axis(self, metric: str, errors: NDArray[np.float64]) -> NDArray[np.float64]:
        """Errors as a metric counts them."""
        return errors if metric == "M1" else np.log(np.maximum(errors, self._least_error))


def replay(
    table: Table,
    sampler: Sampler,
    rule: Rule | None,
    *,
    seed: int,
    workers: int,
    epochs: int,
    targets: Mapping[str, float] | None = None,
    least_epochs: int = 0,
) -> Replayed:
    """Search until every target is reached or the budget of epochs is used up.

    A worker takes its next trial when the one before has ended. A configuration that is proposed
    again trains with another of the table's seeds, and is refused when they are used up; after
    `REFUSALS` refusals one at random is taken.

    Args:
        table: what is looked up instead of trained.
        sampler: chooses configurations.
        rule: stops trials; None trains all to the end.
        seed: of the order in which a configuration's seeds are used, and of random proposals.
        workers: how many trials train at once.
        epochs: the budget, over all workers.
        targets: hypervolume by metric; None uses the whole budget.
        least_epochs: so many are trained wherever the targets are.
    """
    return Replay(table, sampler, rule, seed=seed).run(workers, epochs, targets, least_epochs)


class Replay:
    """The moving parts of one search."""

    REFUSALS = 3

    def __init__(self, table: Table, sampler: Sampler, rule: Rule | None, *, seed: int) -> None:
        self.table, self.sampler, self.rule = table, sampler, rule
        self.seed = seed
        self.random = np.random.default_rng(seed)
        shape = table.accuracy.shape[:2]
        self.repeats = self.random.permuted(
            np.broadcast_to(np.arange(table.seeds), (*shape, table.seeds)), axis=2
        )
        self.used = np.zeros(shape, int)
        self.trials: list[Trial] = []
        self.volumes = Hypervolumes(table)
        self.progress: list[Progress] = []

    def run(
        self, workers: int, epochs: int, targets: Mapping[str, float] | None, least_epochs: int
    ) -> Replayed:
        """Search, see `replay`."""
        running: list[tuple[float, int]] = []
        for _ in range(workers):
            self._start(running, 0.0)
        now, trained = 0.0, 0
        while running and trained < epochs:
            if trained >= least_epochs and self._is_reached(targets):
                break
            now, number = heapq.heappop(running)
            trained += 1
            trial = self.trials[number]
            self._train(trial)
            if trial.state is State.RUNNING:
                seconds = self.table.epoch_seconds[trial.configuration.structure]
                heapq.heappush(running, (now + seconds, number))
                continue
            trial.ended_after = trained
            self.sampler.ended(trial)
            if trial.state is State.COMPLETE:
                self._note(trained, now)
            self._start(running, now)
        complete = sum(trial.state is State.COMPLETE for trial in self.trials)
        return Replayed(tuple(self.progress), len(self.trials), complete, now)

    def _start(self, running: list[tuple[float, int]], now: float) -> None:
        if self.used.min() == self.table.seeds:
            return  # everything has been trained
        configuration = self._configuration()
        row = configuration.structure, configuration.learning_rate
        repeat = int(self.repeats[(*row, self.used[row])])
        self.used[row] += 1
        trial = Trial(len(self.trials), configuration, repeat)
        self.trials.append(trial)
        seconds = self.table.epoch_seconds[configuration.structure]
        heapq.heappush(running, (now + seconds, trial.number))

    def _configuration(self) -> Configuration:
        for _ in range(self.REFUSALS):
            proposed = self.sampler.propose(self.trials)
            if self.used[proposed.structure, proposed.learning_rate] < self.table.seeds:
                return proposed
            self.sampler.refuse()
        left = np.argwhere(self.used < self.table.seeds)
        structure, learning_rate = left[self.random.integers(len(left))]
        return Configuration(int(structure), int(learning_rate))

    def _train(self, trial: Trial) -> None:
        """One epoch, and what follows from it."""
        epoch = len(trial.accuracy) + 1
        if epoch == self.table.diverged_in[_row(trial)]:
            trial.state = State.DIVERGED
            return
        trial.accuracy.append(self._told(trial, epoch))
        if epoch == self.table.epochs:
            trial.state = State.COMPLETE
        elif self.rule is not None and self.rule.stops(self.trials, trial):
            trial.state = State.STOPPED

    def _told(self, trial: Trial, epoch: int) -> float:
        """What a search is told after an epoch: with noise the best of what was told before."""
        accuracy = float(self.table.accuracy[_row(trial)][epoch - 1])
        if not self.table.noise:
            return accuracy
        random = np.random.default_rng([self.seed, trial.number, epoch])
        disturbed = min(1.0, accuracy + random.normal(0.0, self.table.noise))
        return max([disturbed, *trial.accuracy[-1:]])

    def _note(self, epochs: int, now: float) -> None:
        complete = [trial for trial in self.trials if trial.state is State.COMPLETE]
        volumes = self.volumes.of(
            [trial.configuration.structure for trial in complete],
            # The table's own: what was told may be disturbed.
            [float(self.table.accuracy[_row(trial)][-1]) for trial in complete],
        )
        self.progress.append(Progress(epochs, now, volumes))

    def _is_reached(self, targets: Mapping[str, float] | None) -> bool:
        if targets is None or not self.progress:
            return False
        volumes = self.progress[-1].volumes
        return all(volumes[metric] >= target for metric, target in targets.items())


def _row(trial: Trial) -> tuple[int, int, int]:
    """Of the table's first three axes."""
    return trial.configuration.structure, trial.configuration.learning_rate, trial.repeat
