"""What a study starts with: trials of others, copied when it is submitted and never changed.

The copies make a study's suggestions follow from its own rows: they are the same after a restart,
whatever the other study does meanwhile, and when it is deleted. Trials of the same task count as a
study's own do; of those of another task the ranks alone do, for samplers that learn from them.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields
from datetime import UTC, datetime
from typing import Literal

from sqlalchemy.orm import Session

from search.documents.objectives import OBJECTIVE_KINDS
from search.errors import Fault, SpecRefused
from search.samplers import Knowledge, RankedTrials, ranks_of
from search.spaces import AnySpace, Candidate
from search.studies.configurations import is_trained_afresh
from search.studies.feasibility import bytes_wanted
from search.studies.space_of import space_of
from search.studies.spec import StudySpec
from search.tasks import Metric
from search.training.deliverables import prepared_interface
from search.training.trial_spec import TrialSpec
from storage.engine import Database
from storage.errors import NotFound
from storage.records import (
    StudyRecord,
    TrialOrigin,
    TrialRecord,
    TrialState,
    WarmStartTrialRecord,
)
from storage.repositories.metrics import Metrics
from storage.repositories.studies import Studies
from storage.repositories.trials import Trials
from storage.repositories.warm_start_trials import WarmStartTrials

_UNKNOWN = datetime(1970, 1, 1, tzinfo=UTC)
"""When a copy was made says nothing to a sampler."""

_COPIED = {field.name for field in fields(WarmStartTrialRecord)} & {
    field.name for field in fields(TrialRecord)
}
"""What a copy has of the trial itself."""

_MEASURED = ("throughput", "throughput_ratio", "latency_p50", "latency_p99")
"""What does not compare where it was measured otherwise."""


@dataclass(frozen=True, kw_only=True)
class SourceTrials:
    """What is used of a study in `warm_start`; `by` as in `WarmStartSource`."""

    study: str
    by: Literal["results", "ranks"]
    trials: Sequence[WarmStartTrialRecord]


def source_trials(database: Database, spec: StudySpec, space: AnySpace) -> Sequence[SourceTrials]:
    """The trials of the studies in `warm_start`, as they stand now.

    Of the same task those that lie in the space, complete and stopped ones; of another task
    complete ones of candidates that the space has. Each was trained from the start.

    Raises:
        SpecRefused: a study is not there, measured throughput otherwise, or has another task, which
            the sampler does not learn from or which shares no dimension with this one.
    """
    found: list[SourceTrials] = []
    faults: list[Fault] = []
    with database.read() as session:
        for index, study_id in enumerate(spec.warm_start):
            try:
                other = Studies(session).get(study_id)
            except NotFound as error:
                faults.append(Fault(f"warm_start.{index}", str(error)))
                continue
            theirs = StudySpec.model_validate(other.spec)
            other_task = _other_task(spec, theirs, study_id)
            if other_task is None:
                fault = _otherwise_measured(spec, theirs, study_id)
            else:
                fault = _no_ranks(spec, space, theirs, study_id, other_task)
            if fault is not None:
                faults.append(Fault(f"warm_start.{index}", fault))
            elif other_task is None:
                trials = [*_fitting(session, spec, space, other)]
                found.append(SourceTrials(study=study_id, by="results", trials=trials))
            else:
                trials = _ranked(session, space, other, theirs.task.metric)
                found.append(SourceTrials(study=study_id, by="ranks", trials=trials))
    if faults:
        raise SpecRefused(faults)
    return found


def knowledge_of(database: Database, study_id: str) -> Knowledge:
    """What a study was given when it was submitted."""
    with database.read() as session:
        copies = WarmStartTrials(session).list(study_id)
    numbered = [*enumerate(copies, start=-len(copies))]
    comparable = [(number, one) for number, one in numbered if one.rank is None]
    ranked: dict[str, list[tuple[TrialRecord, float]]] = {}
    for number, one in numbered:
        if one.rank is not None:
            trials = ranked.setdefault(one.source_study, [])
            trials.append((_trial(one, study_id, number), one.rank))
    return Knowledge(
        trials=tuple(_trial(one, study_id, number) for number, one in comparable),
        validations={number: dict(enumerate(one.curve, start=1)) for number, one in comparable},
        ranked=tuple(
            RankedTrials(trials=[trial for trial, _ in those], ranks=[rank for _, rank in those])
            for those in ranked.values()
        ),
    )


def _other_task(spec: StudySpec, theirs: StudySpec, study_id: str) -> str | None:
    """Why the values of another study's trials do not compare with this one's, if they do not."""
    if theirs.task != spec.task:
        return (
            f"the task of study {study_id!r} is {theirs.task.model_dump_json()}; allowed is this "
            "study's own, field by field"
        )
    if theirs.compress != spec.compress:
        return (
            f"study {study_id!r} starts its trials from {_start(theirs)}, and this one from "
            f"{_start(spec)}; allowed are studies that start from the same"
        )
    return None


def _otherwise_measured(spec: StudySpec, theirs: StudySpec, study_id: str) -> str | None:
    measured = any(OBJECTIVE_KINDS[name].known == "measured" for name in spec.objectives)
    if measured and theirs.throughput.protocol != spec.throughput.protocol:
        return (
            f"study {study_id!r} measured throughput by {theirs.throughput.model_dump_json()}; "
            f"allowed is {spec.throughput.model_dump_json()}, or another objective"
        )
    return None


def _no_ranks(
    spec: StudySpec, space: AnySpace, theirs: StudySpec, study_id: str, other_task: str
) -> str | None:
    """Why the ranks of another task's trials are of no use, if they are not."""
    if not spec.sampler.learns_from_ranks():
        return (
            f"{other_task}, or the sampler freeze_thaw, which goes by the ranks of such trials; "
            f"this study's is {spec.sampler.kind}"
        )
    dimensions = space_of(theirs).dimensions
    if dimensions.keys() & space.dimensions.keys():
        return None
    return (
        f"study {study_id!r} has another task and searches {', '.join(dimensions) or 'nothing'}; "
        f"allowed are those that search a dimension of this study: {', '.join(space.dimensions)}"
    )


def _start(spec: StudySpec) -> str:
    if spec.compress is None:
        return "the seed's initialisation"
    return (
        f"the model {spec.compress.model!r} by {spec.compress.model_dump_json(exclude={'facts'})}"
    )


def _fitting(
    session: Session, spec: StudySpec, space: AnySpace, other: StudyRecord
) -> Iterator[WarmStartTrialRecord]:
    validations = Metrics(session).validations(other.id)
    theirs = StudySpec.model_validate(other.spec)
    same_speed = theirs.throughput.protocol == spec.throughput.protocol
    interface = prepared_interface(other.prepared)
    for trial in Trials(session).list(other.id, TrialState.COMPLETE, TrialState.STOPPED):
        curve = validations.get(trial.number, {})
        # A result that was taken over from an equal trial has no curve, and says nothing new.
        if not curve or not is_trained_afresh(trial):
            continue
        trained = TrialSpec.model_validate(trial.spec)
        place = space.place(trained)
        if place is None:
            continue
        copied = {name: getattr(trial, name) for name in _COPIED}
        copied |= {
            "hyperparameters": dict(place.hyperparameters),
            "drawn": dict(place.drawn),
            **{name: _speed(trial, name) if same_speed else None for name in _MEASURED},
            # Of this study's file, which may be another; the task is the same, and so is what
            # preparing its data found.
            "bytes": bytes_wanted(spec, trained, interface),
        }
        yield WarmStartTrialRecord(
            source_study=other.id,
            source_trial=trial.number,
            curve=[curve[epoch] for epoch in sorted(curve)],
            **copied,
        )


def _speed(trial: TrialRecord, name: str) -> float | None:
    """What was measured, or else what was predicted: samplers take it for the trial's own."""
    measured: float | None = getattr(trial, name)
    return trial.predicted.get(name, [None])[0] if measured is None else measured


def _ranked(
    session: Session, space: AnySpace, other: StudyRecord, metric: Metric
) -> Sequence[WarmStartTrialRecord]:
    sign = -1 if metric.direction == "maximize" else 1
    validations = Metrics(session).validations(other.id)
    trials: list[tuple[TrialRecord, float]] = []
    for trial in Trials(session).list(other.id, TrialState.COMPLETE):
        candidate = Candidate(
            architecture=trial.architecture, parametrization=trial.parametrization
        )
        # A result that was taken over would count twice.
        if trial.number not in validations or not is_trained_afresh(trial):
            continue
        if candidate in space.candidates and trial.quality is not None:
            trials.append((trial, sign * trial.quality))
    ranks = ranks_of([error for _, error in trials])
    found: list[WarmStartTrialRecord] = []
    for (trial, _), rank in zip(trials, ranks, strict=True):
        copied = {name: getattr(trial, name) for name in _COPIED}
        copied |= dict.fromkeys((*_MEASURED, "bytes"))
        copied |= {"drawn": {}, "curve": [], "rank": rank}
        found.append(
            WarmStartTrialRecord(source_study=other.id, source_trial=trial.number, **copied)
        )
    return found


def _trial(copy: WarmStartTrialRecord, study_id: str, number: int) -> TrialRecord:
    """The copy as samplers read trials; what they do not read is empty."""
    copied = {name: value for name, value in vars(copy).items() if name in _COPIED}
    return TrialRecord(
        study_id=study_id,
        number=number,
        origin=TrialOrigin.SAMPLER,
        epochs_trained=len(copy.curve),
        dispatched=True,
        created_at=_UNKNOWN,
        **copied,
    )
