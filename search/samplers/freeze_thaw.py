"""One decision in the place of a sampler and a stopping rule: what trains next, and how far.

Every trial may be paused after a few epochs and go on later. Whenever a slot is free, what waits
and what is paused compete by the hypervolume that each is expected to add per epoch. After Swersky,
Snoek & Adams 2014 (arXiv 1406.3896), with costs that are known exactly; the index of an option is
Weitzman's reservation price (1979), one look ahead.

Its core is pure: `search.samplers.pausing.options`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Literal, final

import numpy as np
from optuna.samplers import BaseSampler
from pydantic import Field, TypeAdapter

from search.samplers.modelling.acquisition import undominated
from search.samplers.modelling.candidates import CandidateDraws, farthest_costs, is_own
from search.samplers.modelling.gaussian_process import Array
from search.samplers.modelling.sampler_cache import SamplerCache
from search.samplers.pausing.options import Begun, SearchOptions, Standing
from search.samplers.pausing.trial_table import TrialTable
from search.samplers.sampler import (
    NO_LIMIT,
    Choice,
    Past,
    Question,
    Ranking,
    Sampler,
    SamplerContext,
    Space,
    WholeSampler,
)
from search.spaces import DrawnTrial, Scalar
from search.stopping import rungs
from storage.records import TrialOrigin, TrialRecord, TrialState

_RESUME_BYTES = 16
"""Of a stored state, for each parameter: it, its best value, and two moments of Adam."""
_KEPT_PER_SLOT = 2
"""So many of the best paused trials are kept for each slot, whatever room they take."""
_RANDOM, _DECISION = 0x7264, 0x6463
"""Keep the draws of random suggestions and of decisions apart from others of the same seed."""
_MOST_OF_SERIES = 8
"""So many suggestions of one shape are chosen at once."""
_MOST_JUDGED = 16
"""For so many running trials one decision says anew with which errors they go on."""
_INTEGER = TypeAdapter(int)
_NONE = -1


class FreezeThaw(Sampler):
    """Pauses trials, and goes on with those that promise the most hypervolume per epoch.

    Parameters and bytes follow from the configuration, throughput and latency were measured for its
    shape or are predicted. How a learning curve goes on is learned from the study's own curves, for
    each kind of network apart.
    """

    kind: Literal["freeze_thaw"] = "freeze_thaw"
    startup_trials: int | None = Field(
        default=None,
        ge=1,
        le=1_000_000,
        description="first suggestions, spread over sizes instead of modelled; null: a sixth of "
        "`budget.trials`, 3 at least and 10 at most, and no fewer than slots",
    )
    random_share: float = Field(
        default=0.05, ge=0, le=1, description="share of later suggestions that are random"
    )
    min_epochs: int = Field(
        default=1, ge=1, le=100_000, description="no trial is paused before this epoch"
    )
    spacing: int = Field(
        default=2,
        ge=2,
        le=100_000,
        description="trials are judged after `min_epochs`, `spacing` times as many, and so on",
    )
    price: Literal["epochs", "seconds"] = Field(
        default="epochs",
        description="what the hypervolume that is expected of a trial is divided by: the epochs "
        "that it still needs, or their seconds, predicted for each shape from measured epochs; "
        "until five shapes were trained, epochs",
    )
    held_bytes: int = Field(
        default=2 << 30,
        ge=0,
        lt=2**63,
        description="room for the states of paused trials; beyond it those that promise the least "
        "are stopped. With 0 none is kept: what is paused is stopped",
    )

    def rungs(self, epochs: int, /) -> tuple[int, ...]:
        """The epochs of a training of so many after which a trial may be paused."""
        return rungs(self.min_epochs, self.spacing, epochs=epochs)

    def learns_from_ranks(self) -> bool:
        """Trials of other tasks tell beforehand which configurations end well."""
        return True

    def asks_for_seconds(self) -> bool:
        """Whether trials are compared by how long they take."""
        return self.price == "seconds"

    def build_for(self, study: SamplerContext, /, *, seed: int) -> BaseSampler:
        """A sampler for one suggestion, which follows from `seed` and the study's past."""

        def choose(number: int) -> Mapping[str, Scalar]:
            past = study.past()
            known = [trial for trial in past.trials if trial.number < number]
            if study.slots() == 1:
                known = _as_when_it_began(known, study.sampler_cache)
            search = _Search(
                self,
                study,
                past,
                known,
                np.random.default_rng(seed),
                slots=study.slots(),
                pins=study.pins(number),
            )
            return search.suggestion(number).drawn

        return WholeSampler(study.space.dimensions, choose, seed=seed)

    def rank(self, study: SamplerContext, question: Question, /) -> Ranking:
        """What is to train next of all that waits and all that is paused."""
        past = study.past()
        seeds = [study.seed, question.decision, _DECISION]
        trials, superseded, let_go = [*past.trials], list[int](), dict[int, str]()
        while True:
            generator = np.random.default_rng(np.random.SeedSequence(seeds))
            search = _Search(self, study, past, trials, generator, slots=question.slots)
            ranking = search.ranking(question)
            superseded += ranking.superseded
            let_go |= ranking.let_go
            if not (ranking.superseded or ranking.let_go):
                return replace(ranking, superseded=superseded, let_go=let_go)
            # As it will be once they have ended: a ranking made then comes to the same.
            trials = [
                replace(trial, state=TrialState.STOPPED) if trial.number in let_go else trial
                for trial in trials
                if trial.number not in superseded
            ]

    def fault(self, _space: Space, objectives: Sequence[str], /) -> str | None:
        """Quality is no objective."""
        if "quality" in objectives:
            return None
        return (
            "freeze_thaw models the quality, so that quality has to be an objective; "
            f"objectives are {', '.join(objectives)}"
        )


@final
class _Search:
    """A study as it stands, as the model wants it."""

    def __init__(
        self,
        sampler: FreezeThaw,
        study: SamplerContext,
        past: Past,
        known: Sequence[TrialRecord],
        generator: np.random.Generator,
        *,
        slots: int = 1,
        pins: Mapping[str, Scalar] | None = None,
    ) -> None:
        self._sampler, self._study, self._generator = sampler, study, generator
        self._slots, self._pins = slots, pins or {}
        self._rungs = (*sampler.rungs(study.epochs), study.epochs)
        self._table = TrialTable(
            study,
            past,
            known,
            rungs=self._rungs,
            slots=slots,
            by_seconds=sampler.asks_for_seconds(),
        )
        self._trials, self._own = self._table.trials, self._table.own
        self._complete = {one.number for one in known if one.state is TrialState.COMPLETE}
        self._draws = CandidateDraws(
            study,
            self._trials,
            self._table.costs,
            generator,
            in_vain=self._table.in_vain,
            pins=self._pins,
        )

    def suggestion(self, number: int) -> DrawnTrial:
        """The configuration that a new trial has."""
        if len(self._trials) < self._startup_trials():
            return self._draws.spread()
        if (kept := self._study.sampler_cache.next_of_series(self._pins)) is not None:
            return kept
        begun = self._table.begun()
        if self._is_random(number) or np.isnan(begun.errors).all():
            return self._draws.random()
        fresh = self._draws.fresh(self._front(begun))
        if not fresh:
            return self._draws.random()
        offered = self._table.fresh(fresh)
        index = self._search_options(begun, offered.costs).of_fresh(offered)
        if index.max() <= 0:
            return self._draws.random()
        order: list[int] = np.argsort(-index, kind="stable").tolist()
        allowed = (fresh[place] for place in order if not self._study.is_refused(fresh[place]))
        if not self._pins:
            return next(allowed, fresh[order[0]])
        # Of one shape the best few are taken: nothing is known of one before the others begin.
        best = [*islice(allowed, _MOST_OF_SERIES)] or [fresh[order[0]]]
        self._study.sampler_cache.keep_series(self._pins, best[1:])
        return best[0]

    def ranking(self, question: Question) -> Ranking:
        """What is to train next."""
        begun = self._table.begun()
        wanted = [trial for trial in self._own if trial.number in question.wanted]
        first = [Choice(trial=t.number, until=self._rungs[-1], index=0, price=0) for t in wanted]
        is_open = np.isin(begun.standing, (Standing.PAUSED, Standing.WAITING))
        open_places: list[int] = np.flatnonzero(is_open).tolist()
        options = [place for place in open_places if self._is_option(self._trials[place])]
        left = question.epochs_left
        fitting = [o for o in options if left is None or self._rest(self._trials[o]) <= left]
        over = not first and left is not None and left < self._study.epochs and not fitting
        open_trials = [self._trials[place] for place in open_places]
        repeats = [trial.number for trial in open_trials if self._is_of_no_use(trial)]
        new = [o for o in fitting if self._trials[o].state == TrialState.QUEUED]
        nothing_known = bool(np.isnan(begun.errors).all())
        dispatched = sum(trial.dispatched for trial in self._own)
        is_starting = nothing_known or dispatched < self._startup_trials()
        if (is_starting and new) or (nothing_known and fitting):
            # Nothing tells of them yet: each is looked at for as short as can be.
            ready = [o for o in new or fitting if self._trials[o].number in question.ready]
            looks = self._looks([self._trials[o] for o in ready], left)
            return Ranking(choices=[*first, *looks], together=True, over=over)
        if not fitting:
            let_go = self._let_go(options, {})
            if is_starting and Standing.RUNNING in begun.standing:
                # In the place of each that goes another would be asked for, over and over.
                repeats = []
            return Ranking(choices=first, over=over, let_go=let_go, superseded=repeats)
        search_options = self._search_options(begun, begun.costs)
        index = dict(zip(fitting, search_options.of_begun()[fitting].tolist(), strict=True))
        order = sorted(fitting, key=lambda o: (not self._goes_first(o), -index[o]))
        waiting = [o for o in order if self._trials[o].state == TrialState.QUEUED]
        superseded = [self._trials[o].number for o in waiting[question.slots :]] + repeats
        let_go = self._let_go(options, index)
        if superseded or let_go:
            return Ranking(superseded=superseded, let_go=let_go)
        ready = [o for o in order if self._trials[o].number in question.ready]
        choices = [self._choice(o, index[o], float(begun.price[o])) for o in ready]
        limits: dict[int, Sequence[tuple[int, float]]] = {}
        if choices and not first:
            limits = self._limits(begun, ready, left)
            number = choices[0].trial
            choices[0] = replace(choices[0], limits=limits.pop(number, ()))
        return Ranking(choices=[*first, *choices], limits=limits, over=over)

    def _startup_trials(self) -> int:
        named = self._sampler.startup_trials
        if named is not None:
            return named
        # The first round of many slots is spread, too: nothing is known when it begins.
        return max(min(10, max(3, self._study.trials // 6)), self._slots)

    def _is_random(self, number: int) -> bool:
        """Whether a suggestion is a random one, whatever is known."""
        seeds = np.random.SeedSequence([self._study.seed, number, _RANDOM])
        return bool(np.random.default_rng(seeds).random() < self._sampler.random_share)

    def _goes_first(self, place: int) -> bool:
        trial = self._trials[place]
        return trial.state == TrialState.QUEUED and self._is_random(trial.number)

    def _is_option(self, trial: TrialRecord) -> bool:
        """Whether it is for the sampler to say when the trial goes on."""
        if trial.state == TrialState.PAUSED:
            return True
        return self._is_suggestion(trial) and self._is_new(trial)

    def _is_of_no_use(self, trial: TrialRecord) -> bool:
        """Whether a suggestion repeats what was begun before, by chance."""
        return self._is_suggestion(trial) and not self._is_new(trial)

    def _is_suggestion(self, trial: TrialRecord) -> bool:
        waits = trial.state == TrialState.QUEUED and is_own(trial)
        return waits and trial.origin == TrialOrigin.SAMPLER

    def _is_new(self, trial: TrialRecord) -> bool:
        """Whether a trial repeats none, or one that is complete where that is wanted."""
        return trial.repeats is None or (self._study.replicates and trial.repeats in self._complete)

    def _rest(self, trial: TrialRecord) -> int:
        return self._study.epochs - trial.resumes_from

    def _next(self, trial: TrialRecord) -> int:
        """The epoch after which an option is judged again."""
        reached = trial.resumes_from
        return next(rung for rung in self._rungs if rung > reached)

    def _choice(self, place: int, index: float, price: float) -> Choice:
        trial = self._trials[place]
        until = self._next(trial)
        return Choice(
            trial=trial.number,
            until=until,
            index=index,
            price=(until - trial.resumes_from) * price,
        )

    def _looks(self, trials: Sequence[TrialRecord], left: int | None) -> Sequence[Choice]:
        """A short look at each, or at so many that `left` epochs still bring one to its end.

        For all of them may begin at once.
        """
        looks = [self._look(trial) for trial in trials]
        if left is None or not trials:
            return looks
        beyond = left - min(self._rest(trial) for trial in trials)
        return looks[: 1 + beyond // self._rungs[0]]

    def _look(self, trial: TrialRecord) -> Choice:
        """A short look, after which the trial pauses whatever comes of it."""
        until = self._next(trial)
        limits = ((until, -NO_LIMIT),) if until < self._rungs[-1] else ()
        price = until - trial.resumes_from
        return Choice(trial=trial.number, until=until, index=0.0, price=price, limits=limits)

    def _limits(
        self, begun: Begun, order: Sequence[int], left: int | None
    ) -> dict[int, Sequence[tuple[int, float]]]:
        """Once the first of the options runs: with which errors running trials go on.

        Those go on by themselves alone for whose whole training there are epochs left.
        """
        first = order[0]
        standing, until = begun.standing.copy(), begun.until.copy()
        standing[first] = Standing.RUNNING
        until[first] = self._rungs.index(self._next(self._trials[first]))
        after = replace(begun, standing=standing, until=until)
        search_options = self._search_options(after, after.costs)
        others = search_options.of_begun()[list(order[1:])]
        level = float(others.max()) if len(others) else 0.0
        running: list[int] = np.flatnonzero(standing == Standing.RUNNING).tolist()
        reaches: list[int] = until.tolist()
        if left is not None:
            left -= self._rungs[reaches[first]] - self._trials[first].resumes_from
        found: dict[int, Sequence[tuple[int, float]]] = {}
        # One after the other has its turn, where there are more than one decision keeps up with.
        running.sort(key=lambda place: (place != first, self._judged(self._trials[place])))
        for turn, place in enumerate(running):
            trial = self._trials[place]
            if place != first and (not is_own(trial) or trial.stretch is None):
                continue
            rest = self._study.epochs - self._rungs[reaches[place]]
            is_too_long = left is not None and rest > left
            if left is not None and not is_too_long:
                left -= rest
            judged = self._rungs[reaches[place] : -1]
            if is_too_long:
                found[trial.number] = [(rung, -NO_LIMIT) for rung in judged]
            elif turn < _MOST_JUDGED:
                errors = search_options.go_on_below(place, level).clip(-NO_LIMIT, NO_LIMIT)
                known = errors[reaches[place] : -1].tolist()
                found[trial.number] = list(zip(judged, known, strict=True))
        return found

    def _judged(self, trial: TrialRecord) -> int:
        """The decision that said last with which errors a running trial goes on."""
        return _INTEGER.validate_python((trial.stretch or {}).get("judged", -1))

    def _let_go(self, options: Sequence[int], index: Mapping[int, float]) -> dict[int, str]:
        """Paused trials for whose state there is no room, those that promise the least first."""
        paused = [o for o in options if self._trials[o].state == TrialState.PAUSED]
        paused.sort(key=lambda o: index.get(o, 0.0))
        kept = _KEPT_PER_SLOT * self._slots if self._sampler.held_bytes else 0
        held = sum(_RESUME_BYTES * self._trials[o].parameters for o in paused)
        found: dict[int, str] = {}
        for place in paused[: max(0, len(paused) - kept)]:
            if held <= self._sampler.held_bytes:
                break
            trial = self._trials[place]
            held -= _RESUME_BYTES * trial.parameters
            found[trial.number] = f"let go at epoch {trial.epochs_trained} for room"
        return found

    def _search_options(self, begun: Begun, offered: Array) -> SearchOptions:
        return SearchOptions(
            begun,
            rungs=self._rungs,
            reference_error=self._table.predicted.reference,
            reference_costs=farthest_costs(
                begun.costs, offered, self._table.costs.bounds(self._study.region)
            ),
            baseline_error=self._table.predicted.baseline,
            random=self._generator,
            groups=self._table.encoding.groups,
        )

    def _front(self, begun: Begun) -> list[int]:
        """Places of the finished trials that no other one dominates."""
        finished = begun.standing == Standing.FINISHED
        points = np.column_stack([begun.costs, begun.errors[:, -1]])[finished]
        return np.flatnonzero(finished)[undominated(points)].tolist()


def _as_when_it_began(
    trials: Sequence[TrialRecord], sampler_cache: SamplerCache
) -> list[TrialRecord]:
    """The trials as they were when the last decision was made.

    On one slot a suggestion is drawn while the trial that was chosen last trains. What that comes
    to may be known sooner or later than the suggestion is drawn, which is to be the same each time.
    """
    decisions = sampler_cache.of_all(trials, "decision", _decision)
    last = max(decisions, default=_NONE)
    found = [*trials]
    if last != _NONE:
        place = decisions.index(last)
        running = {"state": TrialState.RUNNING, "quality": None, "detail": None}
        found[place] = replace(trials[place], **running)
    return found


def _decision(trial: TrialRecord) -> int:
    """The number of the decision that chose a trial last."""
    return _NONE if trial.stretch is None else _INTEGER.validate_python(trial.stretch["decision"])
