"""A study's trials as arrays, as `search.samplers.pausing.options` wants them."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple, TypeAlias, final

import numpy as np
from numpy.typing import NDArray
from pydantic import TypeAdapter

from search.samplers.modelling.candidates import is_own, stands, was_begun, was_in_vain
from search.samplers.modelling.costs import Costs
from search.samplers.modelling.encoding import Encoding, values_of_draw, values_of_trial
from search.samplers.modelling.gaussian_process import Array
from search.samplers.modelling.predicted_errors import PredictedErrors
from search.samplers.modelling.sampler_cache import is_settled
from search.samplers.pausing.epoch_seconds import EpochSeconds
from search.samplers.pausing.options import Begun, Fresh, Standing
from search.samplers.pausing.rank_prior import RankScores, rank_weights
from search.samplers.sampler import Past, SamplerContext
from search.spaces import DrawnTrial
from storage.records import TrialRecord, TrialState

_STANDINGS: Mapping[TrialState, Standing] = {
    TrialState.QUEUED: Standing.WAITING,
    TrialState.RUNNING: Standing.RUNNING,
    TrialState.PAUSED: Standing.PAUSED,
    TrialState.COMPLETE: Standing.FINISHED,
    TrialState.STOPPED: Standing.OVER,
    TrialState.INFEASIBLE: Standing.OVER,
}
_INTEGER = TypeAdapter(int)

_Kind: TypeAlias = tuple[str, int]
"""Trials whose memory is alike: a family, and how many digits the number of parameters has."""


class _Fit(NamedTuple):
    """Whether memory was enough for a trial of a kind; None where it was not tried."""

    kind: _Kind
    was_enough: bool | None


@final
class TrialTable:
    """What is known of a study's trials; of other studies' as well, see `Knowledge`."""

    def __init__(
        self,
        study: SamplerContext,
        past: Past,
        known: Sequence[TrialRecord],
        *,
        rungs: Sequence[int],
        slots: int,
        by_seconds: bool,
    ) -> None:
        """`known` are the study's own trials; those that say nothing of the quality are no rows."""
        self._study, self._rungs, self._slots = study, rungs, slots
        self.own: Sequence[TrialRecord] = [trial for trial in known if was_begun(trial)]
        self.trials: Sequence[TrialRecord] = [*study.knowledge.trials, *self.own]
        """The rows; other studies' first."""
        self.in_vain: Sequence[TrialRecord] = [trial for trial in known if was_in_vain(trial)]
        self.encoding = Encoding(study.space.dimensions)
        # Those in vain tell how fast their shapes are, too: for limits, the most.
        measured = [*self.trials, *self.in_vain]
        self.costs = Costs(
            study.objectives, measured, study.sampler_cache, file_bytes=study.file_bytes
        )
        self.predicted = PredictedErrors(study, past, self.trials)
        self._seconds = EpochSeconds(self.own, past.epoch_seconds if by_seconds else {})
        self._scores = RankScores(self.encoding, study.knowledge.ranked, study.sampler_cache)
        self._weights = np.zeros(len(study.knowledge.ranked))
        self._families: dict[str, int] = {}
        fits = study.sampler_cache.of_all(known, "memory", _fit_of)
        self._tried = Counter(fit.kind for fit in fits if fit.was_enough is not None)
        self._fitting = Counter(fit.kind for fit in fits if fit.was_enough)

    def begun(self) -> Begun:
        """All trials."""
        trials, of_all = self.trials, self._study.sampler_cache.of_all
        fits = of_all(trials, "memory", _fit_of)
        begun = Begun(
            features=_stacked(of_all(trials, "row", self._row)),
            costs=self.costs.of_trials(trials),
            families=self._numbers([fit.kind[0] for fit in fits]),
            errors=self._errors(),
            standing=np.array(of_all(trials, "standing", _standing), dtype=np.int64),
            until=self._until(),
            price=self._seconds.of_trials(trials),
            chance=self._chances([fit.kind for fit in fits]),
            prior=np.zeros(len(trials)),
        )
        if not len(self._weights):
            return begun
        scores = _stacked(of_all(trials, "rank scores", self._row_of_scores))
        self._weights = rank_weights(begun, scores, rungs=self._rungs)
        return replace(begun, prior=scores @ self._weights)

    def fresh(self, drawn: Sequence[DrawnTrial]) -> Fresh:
        """Configurations; with what ranks say of them once `begun` has looked at the trials."""
        kinds = [_kind_of_draw(one) for one in drawn]
        features = self.encoding.rows(map(values_of_draw, drawn))
        return Fresh(
            features=features,
            costs=self.costs.of_draws(drawn),
            families=self._numbers([family for family, _ in kinds]),
            price=self._seconds.of_draws(drawn),
            chance=self._chances(kinds),
            prior=self._scores.of(features) @ self._weights,
        )

    def _row(self, trial: TrialRecord) -> Array:
        return np.array(self.encoding.row(values_of_trial(trial)))

    def _row_of_scores(self, trial: TrialRecord) -> Array:
        return self._scores.of(self._row(trial)[None])[0]

    def _numbers(self, families: Sequence[str]) -> NDArray[np.int64]:
        known = self._families
        return np.array([known.setdefault(one, len(known)) for one in families], dtype=np.int64)

    def _until(self) -> NDArray[np.int64]:
        until = np.full(len(self.trials), -1)
        for place, trial in enumerate(self.trials):
            if trial.state is TrialState.RUNNING:
                until[place] = self._rung_ahead(trial)
        return until

    def _rung_ahead(self, trial: TrialRecord) -> int:
        """Index of the rung that a running trial trains to."""
        last = len(self._rungs) - 1
        until = self._rungs[last]
        if trial.stretch is not None:
            until = _INTEGER.validate_python(trial.stretch["until"])
        reached = self._known_epochs(trial)
        ahead = (i for i, rung in enumerate(self._rungs) if rung >= until and rung > reached)
        return next(ahead, last)

    def _known_epochs(self, trial: TrialRecord) -> int:
        """How much of a running trial's curve counts.

        On one slot what it says meanwhile comes sooner or later than the next suggestion is drawn,
        which is to be the same each time: there it counts when the trial pauses or ends.
        """
        curve = len(self.predicted.curve(trial))
        if trial.stretch is None or self._slots > 1:
            return curve
        return min(curve, _INTEGER.validate_python(trial.stretch["from"]))

    def _errors(self) -> Array:
        """The log error at each rung `[N, R]`, NaN where it was not reached."""
        of_all = self._study.sampler_cache.of_all
        is_known = np.array(of_all(self.trials, "tells all", _tells_all), dtype=np.bool_)
        errors = np.empty((len(self.trials), len(self._rungs)))
        for place in np.flatnonzero(~is_known).tolist():
            errors[place] = self._told_errors(self.trials[place])
        what = f"errors at {self._rungs} of {self.predicted.baseline}"
        known = [trial for trial, told in zip(self.trials, is_known, strict=True) if told]
        errors[is_known] = _stacked(of_all(known, what, self._told_errors), len(self._rungs))
        return errors

    def _told_errors(self, trial: TrialRecord) -> Array:
        if trial.state == TrialState.INFEASIBLE:
            return np.full(len(self._rungs), self.predicted.baseline)
        curve = list(self.predicted.curve(trial))
        if trial.state == TrialState.RUNNING:
            curve = curve[: self._known_epochs(trial)]
        found = [curve[rung - 1] if rung <= len(curve) else np.nan for rung in self._rungs]
        if trial.state == TrialState.COMPLETE:
            found[-1] = self.predicted.known_error(trial)[0]
        return np.array(found)

    def _chances(self, kinds: Sequence[_Kind]) -> Array:
        """The share of like trials that memory was enough for, as if one more had been."""
        tried, fitting = self._tried, self._fitting
        return np.array([(1 + fitting[kind]) / (1 + tried[kind]) for kind in kinds])


def _standing(trial: TrialRecord) -> Standing:
    # Another study's trial counts for the model, and is on no front of this; nor is one that breaks
    # a limit, as was found later.
    is_over = not is_own(trial) or (trial.state is TrialState.COMPLETE and not stands(trial))
    return Standing.OVER if is_over else _STANDINGS[trial.state]


def _stacked(rows: Sequence[Array], width: int = 0) -> Array:
    """`[N, D]` of N rows; `width` is D where there are none."""
    return np.concatenate(rows).reshape(len(rows), -1) if rows else np.empty((0, width))


def _tells_all(trial: TrialRecord) -> bool:
    return is_settled(trial) and (trial.state != TrialState.COMPLETE or bool(trial.quality))


def _fit_of(trial: TrialRecord) -> _Fit:
    ran_out = (trial.detail or "").startswith("out of memory")
    was_tried = trial.dispatched and (trial.state != TrialState.INFEASIBLE or ran_out)
    kind = _kind(f"{trial.architecture} {trial.parametrization}", trial.parameters)
    return _Fit(kind, not ran_out if was_tried else None)


def _kind_of_draw(drawn: DrawnTrial) -> _Kind:
    model = drawn.spec.model
    return _kind(f"{model.architecture.kind} {model.parametrization.family}", drawn.parameters)


def _kind(family: str, parameters: int) -> _Kind:
    return family, len(str(parameters))
