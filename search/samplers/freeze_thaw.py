"""One decision in the place of a sampler and a stopping rule: what trains next, and how far.

Every trial may be paused after a few epochs and go on later. Whenever a slot is free, what waits
and what is paused compete by the hypervolume that each is expected to add per epoch. After Swersky,
Snoek & Adams 2014 (arXiv 1406.3896), with costs that are known exactly; the index of an option is
Weitzman's reservation price (1979), one look ahead.

Its core is pure: `search.samplers.pausing.options`.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Literal, final

import numpy as np
from optuna.samplers import BaseSampler
from pydantic import Field, TypeAdapter

from search.samplers.modelling.acquisition import undominated
from search.samplers.modelling.candidates import (
    CandidateDraws,
    farthest_costs,
    is_own,
    was_begun,
)
from search.samplers.modelling.costs import Costs
from search.samplers.modelling.encoding import Encoding, values_of_draw, values_of_trial
from search.samplers.modelling.gaussian_process import Array
from search.samplers.modelling.predicted_errors import PredictedErrors
from search.samplers.modelling.sampler_cache import is_settled
from search.samplers.pausing.epoch_seconds import EpochSeconds
from search.samplers.pausing.options import Begun, Fresh, SearchOptions, Standing
from search.samplers.pausing.rank_prior import RankScores, rank_weights
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
_STANDINGS: Mapping[TrialState, Standing] = {
    TrialState.QUEUED: Standing.WAITING,
    TrialState.RUNNING: Standing.RUNNING,
    TrialState.PAUSED: Standing.PAUSED,
    TrialState.COMPLETE: Standing.FINISHED,
    TrialState.STOPPED: Standing.OVER,
    TrialState.INFEASIBLE: Standing.OVER,
}
_MOST_JUDGED = 16
"""For so many running trials one decision says anew with which errors they go on."""
_INTEGER = TypeAdapter(int)


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
            known = _as_when_it_began(known, slots=study.slots())
            search = _Search(
                self, study, past, known, np.random.default_rng(seed), slots=study.slots()
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
            # As it will be once they have ended: whoever ranks anew then comes to the same.
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
    ) -> None:
        self._sampler, self._study, self._generator = sampler, study, generator
        self._slots = slots
        self._own = [trial for trial in known if was_begun(trial)]
        self._complete = {one.number for one in known if one.state == TrialState.COMPLETE}
        self._trials = [*study.knowledge.trials, *self._own]
        self._rungs = (*sampler.rungs(study.epochs), study.epochs)
        self._encoding = Encoding(study.space.dimensions)
        self._costs = Costs(
            study.objectives, self._trials, study.sampler_cache, file_bytes=study.file_bytes
        )
        self._draws = CandidateDraws(study, self._trials, self._costs, generator)
        self._predicted = PredictedErrors(study, past, self._trials)
        self._scores = RankScores(self._encoding, study.knowledge.ranked, study.sampler_cache)
        self._weights = np.zeros(len(study.knowledge.ranked))
        self._families: dict[str, int] = {}
        seconds: Mapping[int, float] = past.epoch_seconds if sampler.asks_for_seconds() else {}
        self._seconds = EpochSeconds(self._own, seconds)
        self._feasible, self._tried = self._memory_shares(known)

    def suggestion(self, number: int) -> DrawnTrial:
        """The configuration that a new trial has."""
        if len(self._trials) < self._startup_trials():
            return self._draws.spread()
        begun = self._begun()
        if self._is_random(number) or np.isnan(begun.errors).all():
            return self._draws.random()
        fresh = self._draws.fresh(self._front(begun))
        if not fresh:
            return self._draws.random()
        offered = self._fresh(fresh)
        index = self._search_options(begun, offered.costs).of_fresh(offered)
        if index.max() <= 0:
            return self._draws.random()
        order: list[int] = np.argsort(-index, kind="stable").tolist()
        allowed = (fresh[place] for place in order if not self._study.is_refused(fresh[place]))
        return next(allowed, fresh[order[0]])

    def ranking(self, question: Question) -> Ranking:
        """What is to train next."""
        begun = self._begun()
        wanted = [trial for trial in self._own if trial.number in question.wanted]
        first = [Choice(trial=t.number, until=self._rungs[-1], index=0, price=0) for t in wanted]
        options = [place for place, one in enumerate(self._trials) if self._is_option(one)]
        left = question.epochs_left
        fitting = [o for o in options if left is None or self._rest(self._trials[o]) <= left]
        over = not first and left is not None and left < self._study.epochs and not fitting
        dispatched = sum(trial.dispatched for trial in self._own)
        if dispatched < self._startup_trials() or np.isnan(begun.errors).all():
            # Nothing tells of them yet: each is looked at for as short as can be.
            new = [o for o in fitting if self._trials[o].state == TrialState.QUEUED]
            ready = [o for o in new if self._trials[o].number in question.ready]
            looks = [self._look(self._trials[o]) for o in ready]
            return Ranking(choices=[*first, *looks], together=True, over=over)
        repeats = [trial.number for trial in self._own if self._is_of_no_use(trial)]
        if not fitting:
            let_go = self._let_go(options, {})
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
        choices = [self._choice(o, index[o]) for o in ready]
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

    def _reached(self, trial: TrialRecord) -> int:
        """The epoch that an option has trained."""
        return trial.epochs_trained if trial.state == TrialState.PAUSED else 0

    def _rest(self, trial: TrialRecord) -> int:
        return self._study.epochs - self._reached(trial)

    def _next(self, trial: TrialRecord) -> int:
        """The epoch after which an option is judged again."""
        reached = self._reached(trial)
        return next(rung for rung in self._rungs if rung > reached)

    def _choice(self, place: int, index: float) -> Choice:
        trial = self._trials[place]
        until = self._next(trial)
        return Choice(
            trial=trial.number,
            until=until,
            index=index,
            price=(until - self._reached(trial)) * self._seconds.of_trial(trial),
        )

    def _look(self, trial: TrialRecord) -> Choice:
        """A first look, after which the trial pauses whatever comes of it."""
        until = self._next(trial)
        limits = ((until, -NO_LIMIT),) if until < self._rungs[-1] else ()
        return Choice(trial=trial.number, until=until, index=0.0, price=until, limits=limits)

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
            left -= self._rungs[reaches[first]] - self._reached(self._trials[first])
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
                told = errors[reaches[place] : -1].tolist()
                found[trial.number] = list(zip(judged, told, strict=True))
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
            reference_error=self._predicted.reference,
            reference_costs=farthest_costs(
                begun.costs, offered, self._costs.bounds(self._study.region)
            ),
            baseline_error=self._predicted.baseline,
            random=self._generator,
            groups=self._encoding.groups,
        )

    def _front(self, begun: Begun) -> list[int]:
        """Places of the finished trials that no other one dominates."""
        finished = begun.standing == Standing.FINISHED
        points = np.column_stack([begun.costs, begun.errors[:, -1]])[finished]
        return np.flatnonzero(finished)[undominated(points)].tolist()

    def _begun(self) -> Begun:
        trials = self._trials
        recollect = self._study.sampler_cache.of
        begun = Begun(
            features=np.array([recollect(one, "row", self._row) for one in trials]).reshape(
                len(trials), -1
            ),
            costs=self._costs.of_trials(trials),
            families=np.array([self._family(_family_of(one)) for one in trials], dtype=np.int64),
            errors=np.array([self._errors(one) for one in trials]).reshape(-1, len(self._rungs)),
            standing=np.array([self._standing(one) for one in trials], dtype=np.int64),
            until=np.array([self._until(one) for one in trials], dtype=np.int64),
            price=np.array([self._seconds.of_trial(one) for one in trials]),
            chance=np.array([self._chance(_family_of(one), one.parameters) for one in trials]),
            prior=np.zeros(len(trials)),
        )
        if not len(self._weights):
            return begun
        scores = np.array([recollect(one, "rank scores", self._row_of_scores) for one in trials])
        scores = scores.reshape(len(trials), -1)
        self._weights = rank_weights(begun, scores, rungs=self._rungs)
        return replace(begun, prior=scores @ self._weights)

    def _fresh(self, drawn: Sequence[DrawnTrial]) -> Fresh:
        families = [_family_of_draw(one) for one in drawn]
        counts = [one.parameters for one in drawn]
        features = self._encoding.rows(map(values_of_draw, drawn))
        return Fresh(
            features=features,
            costs=self._costs.of_draws(drawn),
            families=np.array([self._family(name) for name in families], dtype=np.int64),
            price=np.array([self._seconds.of_draw(one) for one in drawn]),
            chance=np.array([self._chance(*of) for of in zip(families, counts, strict=True)]),
            prior=self._scores.of(features) @ self._weights,
        )

    def _row(self, trial: TrialRecord) -> Array:
        return np.array(self._encoding.row(values_of_trial(trial)))

    def _row_of_scores(self, trial: TrialRecord) -> Array:
        return self._scores.of(self._row(trial)[None])[0]

    def _family(self, name: str) -> int:
        return self._families.setdefault(name, len(self._families))

    def _standing(self, trial: TrialRecord) -> Standing:
        standing = _STANDINGS[trial.state]
        # Another study's trial counts for the model, and is on no front of this.
        return standing if is_own(trial) else Standing.OVER

    def _until(self, trial: TrialRecord) -> int:
        if trial.state != TrialState.RUNNING:
            return -1
        until = (
            self._rungs[-1]
            if trial.stretch is None
            else _INTEGER.validate_python(trial.stretch["until"])
        )
        reached = self._known_epochs(trial)
        return next(
            (i for i, rung in enumerate(self._rungs) if rung >= until and rung > reached),
            len(self._rungs) - 1,
        )

    def _known_epochs(self, trial: TrialRecord) -> int:
        """How much of a running trial's curve counts.

        On one slot what it says meanwhile comes sooner or later than the next suggestion is drawn,
        which is to be the same each time: there it counts when the trial pauses or ends.
        """
        curve = len(self._predicted.curve(trial))
        if trial.stretch is None or self._slots > 1:
            return curve
        return min(curve, _INTEGER.validate_python(trial.stretch["from"]))

    def _errors(self, trial: TrialRecord) -> list[float]:
        """The log error at each rung, NaN where it was not reached."""
        if not is_settled(trial) or trial.state == TrialState.COMPLETE:
            return self._told_errors(trial)
        what = f"errors at {self._rungs} of {self._predicted.baseline}"
        return self._study.sampler_cache.of(trial, what, self._told_errors)

    def _told_errors(self, trial: TrialRecord) -> list[float]:
        if trial.state == TrialState.INFEASIBLE:
            return [self._predicted.baseline] * len(self._rungs)
        curve = list(self._predicted.curve(trial))
        if trial.state == TrialState.RUNNING:
            curve = curve[: self._known_epochs(trial)]
        found = [curve[rung - 1] if rung <= len(curve) else np.nan for rung in self._rungs]
        if trial.state == TrialState.COMPLETE:
            found[-1] = self._predicted.known_error(trial)[0]
        return found

    def _chance(self, family: str, parameters: int) -> float:
        """The share of like trials that memory was enough for, as if one more had been."""
        kind = family, len(str(parameters))
        return (1 + self._feasible[kind]) / (1 + self._tried[kind])

    @staticmethod
    def _memory_shares(
        known: Iterable[TrialRecord],
    ) -> tuple[Counter[tuple[str, int]], Counter[tuple[str, int]]]:
        feasible, tried = Counter[tuple[str, int]](), Counter[tuple[str, int]]()
        for trial in known:
            kind = _family_of(trial), len(str(trial.parameters))
            ran_out = (trial.detail or "").startswith("out of memory")
            if trial.dispatched and (trial.state != TrialState.INFEASIBLE or ran_out):
                tried[kind] += 1
                feasible[kind] += not ran_out
        return feasible, tried


def _as_when_it_began(trials: Sequence[TrialRecord], *, slots: int) -> list[TrialRecord]:
    """The trials as they were when the last decision was made, on one slot.

    A suggestion is drawn while the trial that was chosen last trains. What that comes to may be
    known sooner or later than the suggestion is drawn, which is to be the same each time.
    """
    if slots > 1:
        return [*trials]
    chosen = max(
        (trial for trial in trials if trial.stretch is not None),
        key=lambda trial: _INTEGER.validate_python((trial.stretch or {})["decision"]),
        default=None,
    )
    running = {"state": TrialState.RUNNING, "quality": None, "detail": None}
    return [replace(trial, **running) if trial is chosen else trial for trial in trials]


def _family_of(trial: TrialRecord) -> str:
    return f"{trial.architecture} {trial.parametrization}"


def _family_of_draw(drawn: DrawnTrial) -> str:
    model = drawn.spec.model
    return f"{model.architecture.kind} {model.parametrization.family}"
