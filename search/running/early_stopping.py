"""When a trial ends or pauses early: decided once per epoch of its curve, from our tables alone.

The decision is made in the transaction that first stores the epoch, and a trial that is to stop or
to pause says so in its row from then on. A worker that was lost and sends an epoch again hears the
same.

A rule looks at all trials. A sampler that decides how far trials train has written down before
what is to be compared here, see Note [Stretches] in `search/README.md`.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from pydantic import TypeAdapter
from sqlalchemy.orm import Session

from search.documents.objectives import OBJECTIVE_KINDS, ObjectiveKind
from search.samplers import NO_LIMIT, stands
from search.stopping import Curve, Standings, best_so_far, log_error
from search.studies import Objective, StudySpec
from search.tasks import Metric
from storage.records import Json, StudyRecord, TrialOrigin, TrialRecord, TrialState
from storage.repositories.metrics import Metrics
from storage.repositories.trial_summaries import TrialSummary
from storage.repositories.trials import Trials

_SEEN = (TrialState.COMPLETE, TrialState.STOPPED, TrialState.RUNNING)
"""Whose curves count; those of the others broke off for reasons of their own."""

_EPOCH = TypeAdapter(int)
_LIMITS = TypeAdapter(list[tuple[int, float]])


@dataclass(frozen=True)
class Order:
    """What a trial is to do at the end of its epoch, and why."""

    verdict: Literal["stop", "pause"]
    reason: str


def judge(
    session: Session,
    study: StudyRecord,
    spec: StudySpec,
    number: int,
    epoch: int,
    *,
    is_new: bool,
) -> Order | None:
    """What a trial is to do that has stored an epoch; None while it goes on.

    Args:
        session: a writing session, in which the epoch is stored.
        study: the study as it stands.
        spec: its document.
        number: the trial's.
        epoch: how far the trial has come.
        is_new: whether the epoch was stored for the first time: it is decided about once.
    """
    rule = spec.early_stopping
    if rule is None:
        return _judge_stretch(session, study, spec, number, epoch, is_new=is_new)
    trial = Trials(session).get(study.id, number)
    is_due = is_new and trial.stopping is None and epoch in rule.rungs(spec.budget.epochs)
    if is_due and not _is_exempt(trial):
        standings = _standings(session, study, spec)
        decision = rule.decide(standings, number, epoch) if number in standings.curves else None
        if decision is not None and decision.stop:
            stopping: dict[str, Json] = {
                "rule": rule.kind,
                "epoch": epoch,
                "gain": decision.gain,
                "threshold": decision.threshold,
                "before": [*decision.better],
                "reason": f"{rule.kind} at epoch {epoch}: {decision.why}",
            }
            Trials(session).set_stopping(study.id, number, stopping)
            return Order("stop", str(stopping["reason"]))
    return order_for(trial, epoch)


def order_for(trial: TrialRecord, epoch: int) -> Order | None:
    """What a trial that has trained this epoch was ordered to do, if anything."""
    reason = reason_to_stop(trial, epoch)
    if reason is not None:
        return Order("stop", reason)
    pausing = trial.pausing
    if pausing is None or epoch != pausing["epoch"]:
        return None
    return Order("pause", str(pausing["reason"]))


def _judge_stretch(
    session: Session, study: StudyRecord, spec: StudySpec, number: int, epoch: int, *, is_new: bool
) -> Order | None:
    """Whether a trial pauses after an epoch at which its sampler has set it a limit."""
    if not spec.sampler.rungs(spec.budget.epochs):
        return None
    trial = Trials(session).get(study.id, number)
    limits = dict(_LIMITS.validate_python((trial.stretch or {}).get("limits", [])))
    is_due = is_new and (trial.pausing is None or trial.pausing["epoch"] != epoch)
    if is_due and epoch in limits:
        values = Metrics(session).validations(study.id, {number}).get(number, {})
        errors = best_so_far(
            [_log_error(value, spec.task.metric, study) for value in values.values()]
        )
        error = errors[-1] * math.log(10)
        if error > limits[epoch]:
            reason = (
                f"paused at epoch {epoch}: another trial promises more, as its log error "
                f"is {error:.3g}, above {limits[epoch]:.3g}"
            )
            if limits[epoch] <= -NO_LIMIT:
                reason = f"paused at epoch {epoch}: others are looked at first"
            pausing: dict[str, Json] = {"epoch": epoch, "reason": reason}
            Trials(session).set_pausing(study.id, number, pausing)
            return Order("pause", reason)
    return order_for(trial, epoch)


def reason_to_stop(trial: TrialRecord, epoch: int) -> str | None:
    """Why a trial that has trained this epoch was stopped, if it was."""
    stopping = trial.stopping
    if stopping is None or epoch < _EPOCH.validate_python(stopping["epoch"]):
        return None
    return str(stopping["reason"])


def _is_exempt(trial: TrialRecord) -> bool:
    """Whether somebody wants to see the trial's end whatever it promises."""
    return trial.origin == TrialOrigin.CONFIRMATION or trial.continues is not None


def _standings(session: Session, study: StudyRecord, spec: StudySpec) -> Standings:
    """Every trial that has trained an epoch, with all that is known before training."""
    trials = sorted(Trials(session).summaries(study.id, *_SEEN), key=_by_end)
    validations = Metrics(session).validations(study.id)
    curves: dict[int, Curve] = {}
    histories: dict[int, list[float]] = {}
    spent = 0
    for trial in trials:
        own = validations.get(trial.number, {})
        spent += len(own)
        # What a trial goes on from was trained before, and ended before it: both are one history.
        before = [] if trial.continues is None else histories.get(trial.continues, [])
        values = histories[trial.number] = [*before, *_from_the_first(own)]
        costs = _costs(trial, spec.objectives)
        if not own or costs is None:
            continue
        curves[trial.number] = Curve(
            number=trial.number,
            errors=best_so_far([_log_error(value, spec.task.metric, study) for value in values]),
            costs=costs,
            is_finished=stands(trial) and len(values) >= spec.budget.epochs,
            ended_after=spent if trial.finished_at is not None else None,
        )
    reference = _reference(study, spec, trials)
    return Standings(curves, reference=reference, epochs=spec.budget.epochs, seed=spec.seed)


def _by_end(trial: TrialSummary) -> tuple[float, int]:
    """Those that ended by the time that they did, then those that run."""
    ended = trial.finished_at
    return (math.inf if ended is None else ended.timestamp(), trial.number)


def _log_error(value: float, metric: Metric, study: StudyRecord) -> float:
    """The error in decades; of a metric that ends at 1 none is below one validation sample's."""
    samples = (study.prepared or {}).get("validation")
    if metric.direction == "maximize" and isinstance(samples, int) and samples > 0:
        return log_error(value, metric.direction, smallest=1 / samples)
    return log_error(value, metric.direction)


def _from_the_first(values: Mapping[int, float]) -> list[float]:
    """The values of epochs 1, 2, ... up to the first that is missing."""
    found: list[float] = []
    while (epoch := len(found) + 1) in values:
        found.append(values[epoch])
    return found


def _costs(trial: TrialSummary, objectives: Collection[Objective]) -> tuple[float, ...] | None:
    """The objectives that are known before training, in decades; None while one is not known."""
    found: list[float] = []
    for kind in _costing(objectives):
        value = kind.expected(trial)
        if value is None:
            return None
        found.append(kind.decades(value))
    return tuple(found)


def _costing(objectives: Collection[Objective]) -> list[ObjectiveKind]:
    """Those that are known before training."""
    kinds = [OBJECTIVE_KINDS[name] for name in objectives]
    return [kind for kind in kinds if kind.known != "trained"]


def _reference(
    study: StudyRecord, spec: StudySpec, trials: Sequence[TrialSummary]
) -> tuple[float, ...]:
    """The study's reference point in decades, the error's first.

    Its 1 sample per second is decades beyond all that is measured, which would hide differences in
    speed: twice the cost of the slowest trial's counts instead. So it does where a bound would
    hide every difference: until a trial that stands lies in the region of interest.
    """
    assert study.reference_point is not None
    point, metric = study.reference_point, spec.task.metric
    is_reached = not all(map(spec.region.is_outside, filter(stands, trials)))
    bounded = () if is_reached else spec.region.ends.keys()
    costs: list[float] = []
    for kind in _costing(spec.objectives):
        cost = kind.decades(point[kind.name])
        values = [value for trial in trials if (value := kind.expected(trial)) is not None]
        if values:
            dearest = max(map(kind.decades, values)) + math.log10(2)
            if kind.name in bounded:
                cost = dearest
            elif kind.known == "measured":
                cost = min(cost, dearest)
        costs.append(cost)
    quality = metric.baseline if "quality" in bounded else point["quality"]
    return (_log_error(quality, metric, study), *costs)
