"""Fronts and hypervolumes over quality, parameter count and throughput."""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, TypeVar

import moocore  # pyright: ignore[reportMissingTypeStubs]
import numpy as np
from sqlalchemy.orm import Session

from models.parametrizations import Dense
from models.spec import Spec, kind_of
from search.documents.fronts import ObjectiveInfo
from search.exports import file_sizes, missing_files
from search.fronts.complete_trials import CompleteTrials
from search.studies import OBJECTIVES, Objective, OverSeeds, Qualities, StudySpec
from search.tasks import AnyTask
from storage.records import MeasurementRecord, StudyRecord, TrialOrigin, TrialRecord, TrialState
from storage.repositories.artifact_rows import ArtifactRows
from storage.repositories.measurements import Measurements
from storage.repositories.trial_summaries import AnyTrial, TrialSummary

_DENSE = kind_of(Dense)


class FrontPoint(Spec):
    """One trial that no other is better than in every objective."""

    trial: int
    values: dict[Objective, float | None]
    quality_mean: float | None
    """Over all seeds that its configuration was trained with, the search's own included."""
    quality_interval: tuple[float, float] | None
    """Where the mean over all seeds lies (95 %, Student's t); null for a single seed."""
    seeds: int
    on_front_by_mean: bool
    """Whether it stays on the front when each configuration is judged by its mean."""
    test_quality: float | None
    throughput_ratio: float | None
    architecture: str
    parametrization: str
    hyperparameters: dict[str, Any]
    form: Literal["structured", "dense"]
    """As what its matrices are stored, and were measured."""
    slower: bool
    """Whether it is smaller than its dense baseline and yet, beyond doubt, slower."""
    continues: int | None
    """The trial whose checkpoint it started from: it was trained for longer."""
    artifacts: tuple[str, ...]
    """Roles of what is stored of it."""
    bytes: dict[str, int]
    """By role, the size of a file that is there."""
    missing: dict[str, str]
    """By role, why a file is not there or cannot be; see `search.exports.missing`."""


class OriginalPoint(Spec):
    """The model that a study compresses, as it was uploaded."""

    model: str
    """Its id among uploaded models."""
    trial: int
    values: dict[Objective, float | None]
    test_quality: float | None
    on_front: bool


class Front(Spec):
    """The Pareto front of a study; ties are all on it."""

    objectives: tuple[ObjectiveInfo, ...]
    device: str | None
    hypervolume: float | None
    reference_point: dict[Objective, float] | None
    throughput: Literal["search", "latest"]
    """Whether throughput is what the search went by, or what was measured last."""
    unconfirmed: str | None
    """Why points have fewer seeds than `confirm` asks for; null where all have theirs."""
    original: OriginalPoint | None
    """What a study compresses, once it was measured; null for one that compresses nothing."""
    points: tuple[FrontPoint, ...]


def objective_infos(task: AnyTask, objectives: Sequence[Objective]) -> tuple[ObjectiveInfo, ...]:
    """What each objective is called, which way is better, and its unit."""
    known: dict[Objective, ObjectiveInfo] = {
        "quality": ObjectiveInfo(
            name="quality",
            metric=task.metric.name,
            direction=task.metric.direction,
            unit=task.metric.unit,
        ),
        "parameters": ObjectiveInfo(
            name="parameters", metric="parameters", direction="minimize", unit="numbers"
        ),
        "throughput": ObjectiveInfo(
            name="throughput", metric="throughput", direction="maximize", unit="samples/s"
        ),
    }
    return tuple(known[objective] for objective in objectives)


_T = TypeVar("_T", bound=AnyTrial)


def value_of(trial: AnyTrial, objective: Objective) -> float | None:
    """A trial's value of one objective; null where it has none (yet)."""
    if objective == "parameters":
        return float(trial.parameters)
    return trial.quality if objective == "quality" else trial.throughput


def front_of(trials: Sequence[_T], infos: Sequence[ObjectiveInfo]) -> list[_T]:
    """The complete trials that have every objective and are dominated by none, by number.

    Domination: at least as good in every objective and better in one. Equal trials do not dominate
    each other, so ties are all on the front. Confirmations are on none: they repeat points of it.
    Nor is an original that is over the study's limits, which is measured all the same.
    """
    eligible: list[_T] = []
    points: list[list[float]] = []
    for trial in trials:
        if trial.state != TrialState.COMPLETE or trial.origin == TrialOrigin.CONFIRMATION:
            continue
        if trial.violation is not None:
            continue
        values = [value_of(trial, info.name) for info in infos]
        known = [value for value in values if value is not None]
        if len(known) == len(values):
            eligible.append(trial)
            points.append(known)
    if not eligible:
        return []
    maximise = [info.direction == "maximize" for info in infos]
    on_front = moocore.is_nondominated(np.array(points), maximise=maximise, keep_weakly=True)
    return [trial for trial, keep in zip(eligible, on_front, strict=True) if keep]


def reference_point(spec: StudySpec, *, largest_count: int) -> dict[str, float]:
    """The point that every hypervolume of a study is measured from, fixed when the study starts.

    The task's trivial baseline, the limit on parameters or else the largest possible count, and 1
    sample per second.
    """
    limit = spec.limits.parameters
    return {
        "quality": spec.task.metric.baseline,
        "parameters": float(largest_count if limit is None else limit),
        "throughput": 1.0,
    }


def hypervolume(
    trials: Sequence[AnyTrial],
    infos: Sequence[ObjectiveInfo],
    reference: dict[str, float] | None,
) -> float | None:
    """Volume between the front and the reference point.

    The axes are quality, log10 parameters and log10 throughput. Null for a single objective, and
    before the study has a reference point. Points beyond the reference point add nothing.
    """
    if reference is None or len(infos) < 2:
        return None
    front = front_of(trials, infos)
    if not front:
        return 0.0
    points = np.array(
        [[_axis(info.name, value_of(trial, info.name)) for info in infos] for trial in front], float
    )
    ref = [_axis(info.name, reference[info.name]) for info in infos]
    maximise = [info.direction == "maximize" for info in infos]
    return float(moocore.hypervolume(points, ref=ref, maximise=maximise))


def front(
    session: Session,
    study: StudyRecord,
    *,
    objectives: Sequence[Objective] | None = None,
    latest: bool = False,
    complete: CompleteTrials | None = None,
) -> Front:
    """The front of a study as it stands, over the objectives asked for or the study's own.

    With `latest`, each shape's throughput is its newest record on the device that the search
    measured it on, in place of the one that the search went by. `complete` remembers trials.
    """
    complete = complete or CompleteTrials()
    spec = StudySpec.model_validate(study.spec)
    wanted = spec.objectives if objectives is None else tuple(objectives)
    infos = objective_infos(spec.task, wanted)
    trials = complete.summaries(session, study)
    if latest:
        trials = _measured_last(session, study.id, trials)
    points = front_of(trials, infos)
    qualities = Qualities(trials, complete.seeded(session, study))
    over = {trial.number: qualities.of(trial) for trial in points}
    by_mean = _by_mean(trials, points, qualities, infos)
    original = next((trial for trial in trials if trial.origin == TrialOrigin.ORIGINAL), None)
    whole = over.keys() if original is None else {*over, original.number}
    records = complete.records(session, study, whole)
    measured = Measurements(session).named([t.measurement_id for t in points if t.measurement_id])
    device = next(
        (measured[t.measurement_id].device for t in points if t.measurement_id is not None), None
    )
    sizes = ArtifactRows(session).sizes(
        [digest for trial in points for digest in records[trial.number].artifacts.values()]
    )
    return Front(
        objectives=infos,
        device=device,
        # Whatever a front dominates adds nothing to its hypervolume.
        hypervolume=hypervolume(points, infos, study.reference_point),
        reference_point=_chosen(study.reference_point, wanted),
        throughput="latest" if latest else "search",
        unconfirmed=_unconfirmed(
            study,
            spec,
            [over[trial.number] for trial in points if trial.origin != TrialOrigin.ORIGINAL],
        ),
        original=_original(spec, original, records, on_front=over.keys()),
        points=tuple(
            _point(
                trial,
                records[trial.number],
                over[trial.number],
                sizes=sizes,
                slower=_is_slower(trial, measured.get(trial.measurement_id or "")),
                on_front_by_mean=trial.number in by_mean,
            )
            for trial in points
        ),
    )


def _by_mean(
    trials: Sequence[TrialSummary],
    points: Sequence[TrialSummary],
    qualities: Qualities,
    infos: Sequence[ObjectiveInfo],
) -> set[int]:
    """The numbers of those that are on the front when each is judged by its mean."""
    means = {trial.number: qualities.mean(trial) for trial in trials}
    if any(means[trial.number] != trial.quality for trial in trials):
        points = front_of([replace(t, quality=means[t.number]) for t in trials], infos)
    return {trial.number for trial in points}


def _is_slower(trial: TrialSummary, measured: MeasurementRecord | None) -> bool:
    """Whether it is smaller than its dense baseline, and all of the ratio's interval is below 1."""
    if measured is None or trial.parameters >= trial.dense_parameters:
        return False
    match measured.record.get("ratio"):
        case {"high": int() | float() as high}:
            return high < 1
        case _:
            return False


def _original(
    spec: StudySpec,
    trial: TrialSummary | None,
    records: Mapping[int, TrialRecord],
    *,
    on_front: Collection[int],
) -> OriginalPoint | None:
    if spec.compress is None or trial is None:
        return None
    return OriginalPoint(
        model=spec.compress.model,
        trial=trial.number,
        values={objective: value_of(trial, objective) for objective in OBJECTIVES},
        test_quality=records[trial.number].test_quality,
        on_front=trial.number in on_front,
    )


def _point(
    trial: TrialSummary,
    record: TrialRecord,
    over: OverSeeds | None,
    *,
    sizes: Mapping[str, int],
    slower: bool,
    on_front_by_mean: bool,
) -> FrontPoint:
    return FrontPoint(
        trial=trial.number,
        values={objective: value_of(trial, objective) for objective in OBJECTIVES},
        quality_mean=trial.quality if over is None else over.mean,
        quality_interval=over.interval if over else None,
        seeds=over.seeds if over else 1,
        on_front_by_mean=on_front_by_mean,
        test_quality=record.test_quality,
        throughput_ratio=trial.throughput_ratio,
        architecture=trial.architecture,
        parametrization=trial.parametrization,
        hyperparameters=dict(record.hyperparameters),
        form="dense" if trial.parametrization == _DENSE else "structured",
        slower=slower,
        continues=trial.continues,
        artifacts=tuple(sorted(record.artifacts)),
        bytes=file_sizes(record, sizes),
        missing=missing_files(record),
    )


def _measured_last(
    session: Session, study_id: str, trials: Sequence[TrialSummary]
) -> list[TrialSummary]:
    """The trials with the newest record of their shape and device, where they have any."""
    speeds = Measurements(session).speeds(study_id)
    known = {speed.id: speed for speed in speeds}
    newest = {(speed.shape_key, speed.device): speed for speed in speeds}
    found: list[TrialSummary] = []
    for trial in trials:
        used = known.get(trial.measurement_id or "")
        if used is not None:
            last = newest[used.shape_key, used.device]
            trial = replace(
                trial,
                throughput=last.samples_per_second,
                throughput_ratio=last.ratio,
                measurement_id=last.id,
            )
        found.append(trial)
    return found


def _unconfirmed(
    study: StudyRecord, spec: StudySpec, points: Sequence[OverSeeds | None]
) -> str | None:
    if spec.confirm == 0 or all(over is None or over.seeds > spec.confirm for over in points):
        return None
    if not study.state.has_ended:
        return "the search is not over"
    if study.ending is not None:
        return f"the study ended before: {study.ending}"
    return "confirmations did not end complete"


def _chosen(
    reference: dict[str, float] | None, objectives: Sequence[Objective]
) -> dict[Objective, float] | None:
    if reference is None or len(objectives) < 2:
        return None
    return {objective: reference[objective] for objective in objectives}


def _axis(objective: Objective, value: float | None) -> float:
    """A value on the axis that its hypervolume is measured on.

    Counts and speeds are compared as ratios.
    """
    assert value is not None
    return value if objective == "quality" else math.log10(max(value, 1e-9))
