"""A replayed search whose sampler says which trial trains next, and how far.

The queue is that of a study: one suggestion waits for each worker, one more may take the place of
the least of them after each decision, and all are ranked again whenever a worker is free.
"""

import heapq
import math
from collections.abc import Mapping
from typing import Any, Protocol

from search.samplers import Question, Ranking
from tests.benchmarks.search_efficiency.replay import (
    Configuration,
    Replay,
    Replayed,
    Sampler,
    State,
    Trial,
)
from tests.benchmarks.search_efficiency.table import Table

_OPEN = (State.WAITING, State.RUNNING, State.PAUSED)


class RankingSampler(Sampler, Protocol):
    """Chooses configurations, and says which trial trains next."""

    @property
    def rungs(self) -> tuple[int, ...]:
        """The epochs after which a trial may pause; none: it never does."""
        ...

    def rank(self, trials: list[Trial], question: Question) -> Ranking:
        """What is to train next."""
        ...


class PausingReplay(Replay):
    """The moving parts of one search."""

    def __init__(self, table: Table, sampler: RankingSampler, *, seed: int) -> None:
        super().__init__(table, sampler, None, seed=seed)
        self._ranks = sampler
        self._decisions = 0
        self._is_suggestion_due = False
        self._spent = 0
        self._budget = 0

    def run(
        self, workers: int, epochs: int, targets: Mapping[str, float] | None, least_epochs: int
    ) -> Replayed:
        """Search, see `replay`."""
        running: list[tuple[float, int]] = []
        self._budget = epochs
        now = 0.0
        self._begin_what_can(running, now, workers)
        while running and self._spent < epochs:
            if self._spent >= least_epochs and self._is_reached(targets):
                break
            now, number = heapq.heappop(running)
            self._spent += 1
            trial = self.trials[number]
            self._train(trial)
            self._pause_if_told(trial)
            if trial.state is State.RUNNING:
                heapq.heappush(running, (now + self._seconds(trial), number))
                continue
            if trial.state in (State.COMPLETE, State.DIVERGED):
                trial.ended_after = self._spent
                self.sampler.ended(trial)
            if trial.state is State.COMPLETE:
                self._note(self._spent, now)
            self._begin_what_can(running, now, workers)
        begun = [trial for trial in self.trials if trial.state not in (State.WAITING, State.GONE)]
        complete = sum(trial.state is State.COMPLETE for trial in begun)
        return Replayed(tuple(self.progress), len(begun), complete, now)

    def _begin_what_can(self, running: list[tuple[float, int]], now: float, workers: int) -> None:
        while len(running) < workers:
            self._fill(workers)
            ranking = self._ranks.rank(self.trials, self._question(workers))
            for number in (*ranking.superseded, *ranking.let_go):
                trial = self.trials[number]
                trial.state = State.STOPPED if trial.accuracy else State.GONE
                self.sampler.ended(trial)
            if not ranking.choices:
                return
            choice = ranking.choices[0]
            trial = self.trials[choice.trial]
            trial.stretch = {
                "decision": self._decisions,
                "from": len(trial.accuracy),
                "until": choice.until,
                "limits": [[*limit] for limit in choice.limits],
            }
            for number, limits in ranking.limits.items():
                stretch = self.trials[number].stretch
                if stretch is not None:
                    self.trials[number].stretch = {**stretch, "limits": [[*one] for one in limits]}
            trial.state = State.RUNNING
            self._decisions += 1
            self._is_suggestion_due = not ranking.together
            heapq.heappush(running, (now + self._seconds(trial), trial.number))

    def _fill(self, workers: int) -> None:
        """Have as many suggestions wait as a study has."""
        waiting = sum(trial.state is State.WAITING for trial in self.trials)
        wanted = workers + self._is_suggestion_due
        self._is_suggestion_due = False
        for _ in range(wanted - waiting):
            configuration = self.sampler.propose(self.trials)
            first = self._first_of(configuration)
            row = configuration.structure, configuration.learning_rate
            repeat = int(self.repeats[(*row, 0)])
            trial = Trial(len(self.trials), configuration, repeat, state=State.WAITING)
            trial.repeats = first
            self.trials.append(trial)

    def _first_of(self, configuration: Configuration) -> int | None:
        same = (
            trial.number
            for trial in self.trials
            if trial.configuration == configuration and trial.state is not State.GONE
        )
        return next(same, None)

    def _question(self, workers: int) -> Question:
        promised = sum(
            self._until(trial) - len(trial.accuracy)
            for trial in self.trials
            if trial.state is State.RUNNING
        )
        return Question(
            decision=self._decisions,
            epochs_left=max(0, self._budget - self._spent - promised),
            slots=workers,
            ready=frozenset(trial.number for trial in self.trials if trial.state in _OPEN),
        )

    def _until(self, trial: Trial) -> int:
        rungs = (*self._ranks.rungs, self.table.epochs)
        until: int = 0 if trial.stretch is None else trial.stretch["until"]
        return max(until, next(rung for rung in rungs if rung > len(trial.accuracy)))

    def _pause_if_told(self, trial: Trial) -> None:
        stretch: Mapping[str, Any] = trial.stretch or {}
        limits = dict(stretch.get("limits", ()))
        limit = limits.get(len(trial.accuracy))
        if trial.state is not State.RUNNING or limit is None:
            return
        error = math.log(max(1 - trial.accuracy[-1], self.table.least_error))
        if error > limit:
            trial.state = State.PAUSED

    def _seconds(self, trial: Trial) -> float:
        return float(self.table.epoch_seconds[trial.configuration.structure])
