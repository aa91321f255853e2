"""Fronts and hypervolumes over the objectives of a study."""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import moocore  # pyright: ignore[reportMissingTypeStubs]
import numpy as np
from sqlalchemy.orm import Session

from models.parametrizations import Dense
from models.spec import Spec, kind_of
from search.documents.fronts import ObjectiveInfo
from search.documents.objectives import OBJECTIVE_KINDS, ObjectiveKind
from search.documents.recommendations import Recommendation
from search.exports import file_sizes, missing_files
from search.fronts.complete_trials import CompleteTrials
from search.fronts.dominance import Values, front_of, on_front, value_of, values_of, with_quality
from search.fronts.noise import noise_of
from search.fronts.recommendation import MAX_QUALITY_LOSS, Candidate, cost_of, recommend
from search.graphs.metrics import Agreement
from search.graphs.network_trial import BITS, NETWORK, WHOLE
from search.studies import OBJECTIVES, Objective, OverSeeds, Qualities, StudySpec
from search.tasks import MeasuredTask
from storage.records import MeasurementRecord, StudyRecord, TrialOrigin, TrialRecord
from storage.repositories.artifact_rows import ArtifactRows
from storage.repositories.measurements import Measurements
from storage.repositories.trial_summaries import AnyTrial, TrialSummary

_PLAIN = (kind_of(Dense), WHOLE, BITS)
"""Of models, and of networks of others: matrices that no others take the place of."""


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
    test_agreement: float | None
    """The share of the original's decisions that it keeps on the test part; of networks alone."""
    throughput_ratio: float | None
    runtime: str | None
    """What ran it where its throughput was measured; null where it was not."""
    file_form: str | None
    """How its weights stood in the file that was measured; null where no file was."""
    bits: int | None
    """Of each stored number of its matrices; null for a network, whose layers have their own."""
    latency_p50: float | None
    latency_p99: float | None
    architecture: str
    parametrization: str
    hyperparameters: dict[str, Any]
    form: Literal["structured", "dense"]
    """As what its matrices are stored, and were measured."""
    slower: bool
    """Whether it is smaller than its dense baseline and yet, beyond doubt, slower."""
    outside: bool
    """Whether it lies outside the study's region of interest."""
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
    recommendation: Recommendation | None
    """Which points are worth a look; null while there is none."""
    points: tuple[FrontPoint, ...]


def objective_infos(
    task: MeasuredTask, objectives: Collection[Objective]
) -> tuple[ObjectiveInfo, ...]:
    """What each objective is called, which way is better, and its unit."""
    return tuple(_info(task, OBJECTIVE_KINDS[objective]) for objective in objectives)


def _info(task: MeasuredTask, kind: ObjectiveKind) -> ObjectiveInfo:
    if kind.direction is None:
        metric = task.metric
        return ObjectiveInfo(
            name=kind.name, metric=metric.name, direction=metric.direction, unit=metric.unit
        )
    return ObjectiveInfo(name=kind.name, metric=kind.name, direction=kind.direction, unit=kind.unit)


def reference_point(
    spec: StudySpec, *, largest_count: int, largest_bytes: int | None = None
) -> dict[str, float]:
    """The point that every hypervolume of a study is measured from, fixed when the study starts.

    Each objective's bound, where the study has a region of interest. Otherwise the task's trivial
    baseline, the limit on parameters or else the largest possible count, and 1 sample per second.
    Where latency counts, the limit on it or else that of 1 sample per second; where bytes count,
    the limit on them or else twice the largest file of the space: what stands around a model is not
    known yet.
    """
    limits = spec.limits
    point = {
        "quality": spec.task.metric.baseline,
        "parameters": float(limits.parameters or largest_count),
        "throughput": 1.0,
    }
    if spec.needs_latency:
        point["latency"] = limits.latency_seconds or float(spec.throughput.batch_size)
    most_bytes = limits.bytes or (None if largest_bytes is None else 2 * largest_bytes)
    if most_bytes is not None:
        point["bytes"] = float(most_bytes)
    return point | {name: bound for name, (_, bound) in spec.region.ends.items()}


def hypervolume(
    trials: Sequence[AnyTrial],
    infos: Sequence[ObjectiveInfo],
    reference: dict[str, float] | None,
) -> float | None:
    """Volume between the front and the reference point.

    The axes are quality, and the logarithm of all else. Null for a single objective, before the
    study has a reference point, and where that has no such axis. Points beyond the reference point
    add nothing.
    """
    if reference is None or len(infos) < 2 or any(info.name not in reference for info in infos):
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
    max_quality_loss: float = MAX_QUALITY_LOSS,
    complete: CompleteTrials | None = None,
) -> Front:
    """The front of a study as it stands, over the objectives asked for or the study's own.

    With `latest`, each shape's throughput is its newest record on the device that the search
    measured it on, in place of the one that the search went by. `max_quality_loss` is that of the
    recommendation. `complete` remembers trials.
    """
    complete = complete or CompleteTrials()
    spec = StudySpec.model_validate(study.spec)
    region = spec.region
    wanted = tuple(spec.objectives if objectives is None else objectives)
    infos = objective_infos(spec.task, wanted)
    trials = complete.summaries(session, study)
    values = complete.values(session, study)
    if latest:
        trials = _measured_last(session, study.id, trials)
        values = values_of(trials)
    points = [trials[place] for place in on_front(values, infos)]
    alike = complete.alike(session, study)
    judged = {trial.number: trial for trial in (*alike, *points)}
    qualities = Qualities(
        [judged[number] for number in sorted(judged)], complete.seeded(session, study)
    )
    over = {trial.number: qualities.of(trial) for trial in points}
    by_mean = _by_mean(trials, values, points, alike, qualities, infos)
    inside = [trial for trial in points if not region.is_outside(trial)]
    original = None
    if spec.compressed_model is not None:
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
        recommendation=recommend(
            _candidates(inside or points, over, cost_of(infos)),
            infos,
            noise=noise_of(spec.task),
            max_quality_loss=max_quality_loss,
            among=_among(points, inside),
        ),
        points=tuple(
            _point(
                trial,
                records[trial.number],
                over[trial.number],
                sizes=sizes,
                measured=measured.get(trial.measurement_id or ""),
                on_front_by_mean=trial.number in by_mean,
                outside=region.is_outside(trial),
            )
            for trial in points
        ),
    )


def _candidates(
    points: Sequence[TrialSummary],
    over: Mapping[int, OverSeeds | None],
    cost: Objective | None,
) -> list[Candidate]:
    """The points that have a quality and a cost; judged by their means over seeds."""
    if cost is None:
        return []
    found: list[Candidate] = []
    for trial in points:
        quality, size = value_of(trial, "quality"), value_of(trial, cost)
        if quality is None or size is None:
            continue
        seeds = over[trial.number]
        found.append(
            Candidate(trial.number, quality, size)
            if seeds is None
            else Candidate(trial.number, seeds.mean, size, seeds.standard_error, seeds.seeds)
        )
    return found


def _among(points: Sequence[TrialSummary], inside: Sequence[TrialSummary]) -> str:
    """Which points are looked at, where there is a region of interest."""
    if len(inside) == len(points):
        return ""
    if not inside:
        return "No point lies in the region of interest."
    return f"Looked at: of {len(points)} points the {len(inside)} in the region of interest."


def _by_mean(
    trials: Sequence[TrialSummary],
    values: Values,
    points: Sequence[TrialSummary],
    alike: Sequence[TrialSummary],
    qualities: Qualities,
    infos: Sequence[ObjectiveInfo],
) -> set[int]:
    """The numbers of those that are on the front when each is judged by its mean."""
    others = {
        trial.number: mean
        for trial in alike
        if (mean := qualities.mean(trial)) is not None and mean != trial.quality
    }
    if not others:
        return {trial.number for trial in points}
    rows = {
        place: others[trial.number] for place, trial in enumerate(trials) if trial.number in others
    }
    return {trials[place].number for place in on_front(with_quality(values, rows), infos)}


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
    if spec.compressed_model is None or trial is None:
        return None
    return OriginalPoint(
        model=spec.compressed_model,
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
    measured: MeasurementRecord | None,
    on_front_by_mean: bool,
    outside: bool,
) -> FrontPoint:
    return FrontPoint(
        trial=trial.number,
        values={objective: value_of(trial, objective) for objective in OBJECTIVES},
        quality_mean=trial.quality if over is None else over.mean,
        quality_interval=over.interval if over else None,
        seeds=over.seeds if over else 1,
        on_front_by_mean=on_front_by_mean,
        test_quality=record.test_quality,
        test_agreement=record.test_metrics.get(kind_of(Agreement)),
        throughput_ratio=trial.throughput_ratio,
        runtime=_said(measured, "runtime", "reflectory"),
        file_form=_said(measured, "form", None),
        bits=_bits(record),
        latency_p50=trial.latency_p50,
        latency_p99=trial.latency_p99,
        architecture=trial.architecture,
        parametrization=trial.parametrization,
        hyperparameters=dict(record.hyperparameters),
        form="dense" if trial.parametrization in _PLAIN else "structured",
        slower=_is_slower(trial, measured),
        outside=outside,
        continues=trial.continues,
        artifacts=tuple(sorted(record.artifacts)),
        bytes=file_sizes(record, sizes),
        missing=missing_files(record),
    )


def _bits(record: TrialRecord) -> int | None:
    """That of its spec; those of earlier versions name none, and are whole."""
    if record.architecture == NETWORK:
        return None
    match record.spec.get("model"):
        case {"bits": int(bits)}:
            return bits
        case _:
            return 32


def _said(measured: MeasurementRecord | None, name: str, older: str | None) -> str | None:
    """A word of a measurement's record; those of earlier versions do not have all."""
    word = older if measured is None else measured.record.get(name, older)
    return word if measured is not None and isinstance(word, str) else None


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
                latency_p50=last.latency_p50,
                latency_p99=last.latency_p99,
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
    if reference is None or len(objectives) < 2 or not set(objectives) <= reference.keys():
        return None
    return {objective: reference[objective] for objective in objectives}


def _axis(objective: Objective, value: float | None) -> float:
    """A value on the axis that its hypervolume is measured on.

    Counts and speeds are compared as ratios.
    """
    assert value is not None
    trained = OBJECTIVE_KINDS[objective].known == "trained"
    return value if trained else math.log10(max(value, 1e-9))
