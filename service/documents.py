"""The documents that the API answers with, and how they are made of rows."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, Literal

from pydantic import ConfigDict, Field, model_validator
from sqlalchemy.orm import Session

from models.spec import Spec
from search.exports import has_dense_file
from search.figures import Figures
from search.pareto import Front, ObjectiveInfo, OriginalPoint
from search.remeasuring import Again
from search.spec import Budget, Objective, Priority
from search.studies import StudyProgress, progress
from storage.records import (
    AttemptRecord,
    AttemptState,
    ErrandRecord,
    MeasurementRecord,
    StudyRecord,
    StudyState,
    TrialOrigin,
    TrialRecord,
    TrialState,
)


class StudyLinks(Spec):
    """Where the parts of a study are; paths on this server."""

    study: str
    trials: str
    front: str
    bundle: str
    hypervolume: str
    importance: str
    report: str = Field(description="one HTML file, for people")
    events: str
    cancel: str
    webhooks: str
    page: str = Field(description="for people")
    dashboard: str = Field(description="Optuna's own, for all studies")


class StudyDocument(Spec):
    """A study: what was asked for, where it stands and how far it is."""

    id: str
    name: str
    state: StudyState
    state_reason: str | None
    spec: dict[str, Any]
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    progress: StudyProgress
    links: StudyLinks


class StudyChange(Spec):
    """What may change in a study that was submitted."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"budget": {"trials": 60}}, {"priority": 5}]}
    )

    budget: Budget | None = Field(
        default=None, description="what is named changes, null takes a limit away"
    )
    priority: Priority | None = None

    @model_validator(mode="after")
    def _changes_something(self) -> "StudyChange":
        if self.budget is None and self.priority is None:
            raise ValueError("nothing is to change; allowed are budget and priority")
        return self


class StudyPage(Spec):
    """Studies, newest first."""

    items: tuple[StudyDocument, ...]
    next_cursor: str | None


class TrialValues(Spec):
    """The three objectives; null where a trial has no value (yet)."""

    quality: float | None = Field(description="the task's metric on the validation split")
    parameters: int
    throughput: float | None = Field(description="samples per second")


class TrialLinks(Spec):
    """Where the parts of a trial are; null where there is nothing (yet)."""

    trial: str
    metrics: str
    checkpoint: str | None
    report: str | None
    onnx: str | None
    dense: str | None = Field(
        description="null without a checkpoint to make it of, or layers in torch.nn that compute "
        "the same"
    )
    log: str | None


class AttemptDocument(Spec):
    """One try at a trial."""

    number: int
    state: AttemptState
    reason: str | None
    slot: str
    machine: str | None = Field(default=None, description="the name of the machine where it runs")
    device: str
    started_at: datetime
    ended_at: datetime | None
    stood_still_seconds: float


class TrialDocument(Spec):
    """One configuration, and what came of it."""

    number: int
    outcome: TrialState
    reason: str | None
    architecture: str
    parametrization: str
    hyperparameters: dict[str, Any]
    values: TrialValues
    test_quality: float | None
    test_metrics: dict[str, float] = Field(
        description="all that the task measures on the test split, at the best epoch"
    )
    origin: TrialOrigin = Field(
        description="who named the configuration: the sampler, a preset, the user, or the study "
        "itself, which confirms points of its front; of an original, whoever trained it"
    )
    repeats: int | None = Field(description="the trial whose configuration this one repeats")
    continues: int | None = Field(
        description="the trial whose checkpoint this one started from; its own epochs count from 1"
    )
    stopping: dict[str, Any] | None = Field(
        description="why early stopping ended it: the rule, the epoch and what it decided by"
    )
    throughput_ratio: float | None = Field(
        description="to the dense twin, measured in turn with it"
    )
    dense_parameters: int = Field(description="of the dense twin")
    best_epoch: int | None
    epochs_trained: int
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    attempts: tuple[AttemptDocument, ...]
    links: TrialLinks


class EnqueuedLinks(Spec):
    """Where a trial that a user named is, or will be."""

    trial: str | None
    trials: str


class EnqueuedDocument(Spec):
    """A trial that a user named, and that begins before all that wait."""

    number: int | None = Field(
        description="null until a coordinator has made it, which takes a second at most while one "
        "runs: sent again with the same `Idempotency-Key`, the request tells it"
    )
    links: EnqueuedLinks


class TrialPage(Spec):
    """Trials by number."""

    items: tuple[TrialDocument, ...]
    next_cursor: str | None


class MeasurementDocument(Spec):
    """A throughput measurement with its circumstances."""

    id: str
    used: bool = Field(description="whether the search, its limits and the front go by it")
    trial: int = Field(description="the trial it was made for; others of the same shape share it")
    device: str
    samples_per_second: float
    ratio: float
    seconds: float = Field(description="how long the device was held for it")
    record: dict[str, Any]
    created_at: datetime


class AgainDocument(Spec):
    """Another measurement of a trial, which was asked for."""

    state: Literal["waiting", "running", "failed"]
    asked_at: datetime
    reason: str | None = Field(description="why the last try came to nothing")


class MeasureLinks(Spec):
    """Where the records of a trial are."""

    trial: str


class MeasureDocument(Spec):
    """What was asked for: the trial lists the new record as soon as it is there."""

    measurement: AgainDocument
    links: MeasureLinks


class TrialDetail(TrialDocument):
    """A trial with its whole specification and its throughput records."""

    spec: dict[str, Any]
    throughput: MeasurementDocument | None = Field(
        description="the record that the search and the front go by"
    )
    measurements: tuple[MeasurementDocument, ...] = Field(
        description="all records of the trial's shape, oldest first"
    )
    measuring: AgainDocument | None = Field(
        description="another measurement that was asked for and is not there (yet)"
    )


class EpochDocument(Spec):
    """One epoch of a learning curve."""

    epoch: int = Field(
        description="from 1; 0 is what a trial starts from that trains a trained network on"
    )
    train_loss: float | None = Field(description="null at epoch 0")
    validation: float
    spectral_margin: float | None
    gradient_first: float | None = Field(
        description="|dL/dh| before the first step or layer, in the epoch's last batch"
    )
    gradient_last: float | None = Field(description="|dL/dh| after the last one")
    recovered_batches: int = Field(
        description="batches that `training.nan_recovery` stepped in for"
    )
    seconds: float


class ExportDocument(Spec):
    """A file that is not there yet."""

    detail: str


class PointLinks(Spec):
    """What can be downloaded of a point on the front."""

    checkpoint: str | None = Field(description="null where `retention` did not keep it")
    report: str
    onnx: str | None = Field(description="null until the model was exported")
    dense: str | None = Field(
        description="a state dict of plain torch.nn layers, made when it is first asked for; null "
        "where torch.nn has none that compute the same, or `retention` kept no checkpoint"
    )


class PointDocument(Spec):
    """One point on the front."""

    trial: int
    values: TrialValues
    quality_mean: float | None = Field(
        description="over all seeds that the configuration was trained with; the search's own is "
        "among them, which was chosen for its result, so that the mean of few seeds flatters"
    )
    quality_interval: tuple[float, float] | None = Field(
        description="where the mean over all seeds lies: 95 %, Student's t; null for one seed"
    )
    seeds: int = Field(description="how many seeds the configuration was trained with")
    on_front_by_mean: bool = Field(
        description="whether the point stays on the front when all are judged by their means"
    )
    test_quality: float | None
    throughput_ratio: float | None
    architecture: str
    parametrization: str
    hyperparameters: dict[str, Any]
    form: Literal["structured", "dense"] = Field(
        description="as what its matrices are stored, and were measured"
    )
    slower: bool = Field(
        description="whether the point has fewer numbers than its dense twin and is yet the slower "
        "one, all of the ratio's interval below 1: `links.dense`, where there is one, is then the "
        "faster form"
    )
    continues: int | None = Field(
        description="the trial whose checkpoint this one started from: it was trained for longer"
    )
    links: PointLinks


class OriginalDocument(Spec):
    """The model that a study compresses, as it was uploaded: its first trial."""

    model: str = Field(description="its id among /v1/models")
    trial: int
    values: TrialValues
    test_quality: float | None
    on_front: bool = Field(
        description="whether it is a point too: nothing beats it, and it is over no limit"
    )


class FrontDocument(Spec):
    """The Pareto front of a study."""

    objectives: tuple[ObjectiveInfo, ...]
    device: str | None
    hypervolume: float | None
    reference_point: dict[Objective, float] | None
    throughput: Literal["search", "latest"] = Field(
        description="search: the records that the search went by; latest: the newest of each shape "
        "on the same device"
    )
    unconfirmed: str | None = Field(
        description="why points have fewer seeds than the study's `confirm` asks for; null where "
        "all have theirs, or none are asked for"
    )
    original: OriginalDocument | None = Field(
        description="what the study compresses, once it was measured; null where it compresses none"
    )
    points: tuple[PointDocument, ...]


def study_path(study_id: str) -> str:
    """Where a study is."""
    return f"/v1/studies/{study_id}"


def trial_path(study_id: str, number: int) -> str:
    """Where a trial is."""
    return f"{study_path(study_id)}/trials/{number}"


def study_document(session: Session, study: StudyRecord, figures: Figures) -> StudyDocument:
    """A study as of this transaction."""
    return StudyDocument(
        id=study.id,
        name=study.name,
        state=study.state,
        # A study that is asked to end says why before it has.
        state_reason=study.ending if study.state_reason is None else study.state_reason,
        spec=dict(study.spec),
        created_at=study.created_at,
        started_at=study.started_at,
        finished_at=study.finished_at,
        progress=progress(session, study, figures),
        links=study_links(study.id),
    )


def study_links(study_id: str) -> StudyLinks:
    """Where the parts of a study are."""
    path = study_path(study_id)
    return StudyLinks(
        study=path,
        trials=f"{path}/trials",
        front=f"{path}/front",
        bundle=f"{path}/bundle",
        hypervolume=f"{path}/hypervolume",
        importance=f"{path}/importance",
        report=f"{path}/report",
        events=f"{path}/events",
        cancel=f"{path}/cancel",
        webhooks=f"{path}/webhooks",
        page=f"/studies/{study_id}",
        dashboard="/dashboard",
    )


def trial_document(trial: TrialRecord, attempts: Sequence[AttemptRecord]) -> TrialDocument:
    """A trial with its attempts."""
    return TrialDocument(**_trial_fields(trial, attempts))


def trial_detail(
    trial: TrialRecord,
    attempts: Sequence[AttemptRecord],
    *,
    measurements: Sequence[MeasurementRecord],
    again: Again | None,
) -> TrialDetail:
    """A trial with all that is known of it; `measurements` are those of its shape."""
    records = [_measurement_document(record, trial) for record in measurements]
    return TrialDetail(
        **_trial_fields(trial, attempts),
        spec=dict(trial.spec),
        throughput=next((record for record in records if record.used), None),
        measurements=tuple(records),
        measuring=None if again is None else _again_document(again),
    )


def measure_document(study_id: str, number: int, again: Again) -> MeasureDocument:
    """Another measurement, as far as it is."""
    links = MeasureLinks(trial=trial_path(study_id, number))
    return MeasureDocument(measurement=_again_document(again), links=links)


def _again_document(again: Again) -> AgainDocument:
    return AgainDocument(state=again.state, asked_at=again.asked_at, reason=again.reason)


def enqueued_document(errand: ErrandRecord) -> EnqueuedDocument:
    """A trial that a user named, as far as it was made."""
    number = errand.trial
    trial = None if number is None else trial_path(errand.study_id, number)
    links = EnqueuedLinks(trial=trial, trials=f"{study_path(errand.study_id)}/trials")
    return EnqueuedDocument(number=number, links=links)


def front_document(study_id: str, front: Front) -> FrontDocument:
    """A front whose points link to their files."""
    return FrontDocument(
        objectives=front.objectives,
        device=front.device,
        hypervolume=front.hypervolume,
        reference_point=front.reference_point,
        throughput=front.throughput,
        unconfirmed=front.unconfirmed,
        original=_original_document(front.original),
        points=tuple(
            PointDocument(
                trial=point.trial,
                values=_values(point.values),
                quality_mean=point.quality_mean,
                quality_interval=point.quality_interval,
                seeds=point.seeds,
                on_front_by_mean=point.on_front_by_mean,
                test_quality=point.test_quality,
                throughput_ratio=point.throughput_ratio,
                architecture=point.architecture,
                parametrization=point.parametrization,
                hyperparameters=point.hyperparameters,
                form=point.form,
                slower=point.slower,
                continues=point.continues,
                links=PointLinks(
                    checkpoint=(
                        f"{trial_path(study_id, point.trial)}/checkpoint"
                        if "checkpoint" in point.artifacts
                        else None
                    ),
                    report=f"{trial_path(study_id, point.trial)}/report",
                    onnx=(
                        f"{trial_path(study_id, point.trial)}/onnx"
                        if "onnx" in point.artifacts
                        else None
                    ),
                    dense=(
                        f"{trial_path(study_id, point.trial)}/dense" if point.dense_file else None
                    ),
                ),
            )
            for point in front.points
        ),
    )


def _original_document(original: OriginalPoint | None) -> OriginalDocument | None:
    if original is None:
        return None
    return OriginalDocument(
        model=original.model,
        trial=original.trial,
        values=_values(original.values),
        test_quality=original.test_quality,
        on_front=original.on_front,
    )


def _values(values: Mapping[Objective, float | None]) -> TrialValues:
    return TrialValues(
        quality=values["quality"],
        parameters=int(values["parameters"] or 0),
        throughput=values["throughput"],
    )


def _trial_fields(trial: TrialRecord, attempts: Sequence[AttemptRecord]) -> dict[str, Any]:
    path = trial_path(trial.study_id, trial.number)
    return {
        "number": trial.number,
        "outcome": trial.state,
        "reason": trial.reason,
        "architecture": trial.architecture,
        "parametrization": trial.parametrization,
        "hyperparameters": dict(trial.hyperparameters),
        "values": TrialValues(
            quality=trial.quality, parameters=trial.parameters, throughput=trial.throughput
        ),
        "test_quality": trial.test_quality,
        "test_metrics": dict(trial.test_metrics),
        "origin": trial.origin,
        "repeats": trial.repeats,
        "continues": trial.continues,
        "stopping": trial.stopping,
        "throughput_ratio": trial.throughput_ratio,
        "dense_parameters": trial.dense_parameters,
        "best_epoch": trial.best_epoch,
        "epochs_trained": trial.epochs_trained,
        "created_at": trial.created_at,
        "started_at": trial.started_at,
        "finished_at": trial.finished_at,
        "attempts": tuple(_attempt_document(attempt) for attempt in attempts),
        "links": TrialLinks(
            trial=path,
            metrics=f"{path}/metrics",
            checkpoint=f"{path}/checkpoint" if "checkpoint" in trial.artifacts else None,
            report=f"{path}/report" if "report" in trial.artifacts else None,
            onnx=f"{path}/onnx" if "onnx" in trial.artifacts else None,
            dense=f"{path}/dense" if has_dense_file(trial) else None,
            log=f"{path}/log" if attempts else None,
        ),
    }


def _attempt_document(attempt: AttemptRecord) -> AttemptDocument:
    return AttemptDocument(
        number=attempt.number,
        state=attempt.state,
        reason=attempt.reason,
        slot=attempt.slot,
        machine=attempt.machine,
        device=attempt.device,
        started_at=attempt.started_at,
        ended_at=attempt.ended_at,
        stood_still_seconds=attempt.stood_still_seconds,
    )


def _measurement_document(
    measurement: MeasurementRecord, trial: TrialRecord
) -> MeasurementDocument:
    return MeasurementDocument(
        id=measurement.id,
        used=measurement.id == trial.measurement_id,
        trial=measurement.trial,
        device=measurement.device,
        samples_per_second=measurement.samples_per_second,
        ratio=measurement.ratio,
        seconds=measurement.seconds,
        record=dict(measurement.record),
        created_at=measurement.created_at,
    )
