"""Whether what a worker says of its attempt can be: held against its job before it is stored.

A worker is not asked to prove its numbers, which only training again could do. What no honest
worker can say is refused: values outside a metric's range, epochs outside the budget or out of
order, another model's counts, another device, more time than has passed.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta

from pydantic import Field, Json, ValidationError, field_validator

from models.interface import Interface
from models.spec import Spec
from search.errors import Fault, ReportRefused
from search.graphs.offered_layers import OfferedLayers
from search.graphs.reference_documents import ReferenceFile
from search.measuring.throughput import Estimate, ThroughputRecord
from search.tasks import NOT_NEGATIVE, Range
from search.training.jobs import (
    AnyMeasureJob,
    Completion,
    EpochReport,
    MeasureJob,
    MeasurementReport,
    PrepareJob,
    PrepareNetworkJob,
    Shape,
    TrialJob,
)
from search.training.network_jobs import NetworkShape

CLOCKS_APART = timedelta(days=1)
"""By how much more time than has passed a worker may speak of: a machine's wall clock, by which an
attempt's start is known, may be set back while the attempt runs."""

_SHOWN = 100
_LONGEST_SENTENCE = 2000


class _Prepared(Spec):
    """What a prepare job found."""

    train: int = Field(ge=1)
    validation: int = Field(ge=1)
    test: int = Field(ge=1)
    metric: str
    baseline: float
    interface: Json[Interface] | None = None
    """JSON; null in what older workers say."""


class _PreparedNetwork(_Prepared):
    """The same of a network, with what may be picked for its layers."""

    offers: str
    fine_tuning: str | None = Field(
        default=None, max_length=_LONGEST_SENTENCE, description="why nothing is trained, if so"
    )
    references: tuple[ReferenceFile, ...] = ()
    warnings: tuple[str, ...] = ()

    @field_validator("offers")
    @classmethod
    def _can_be_read(cls, offers: str) -> str:
        OfferedLayers.decoded(offers)
        return offers


_PREPARED: Mapping[type[PrepareJob | PrepareNetworkJob], type[_Prepared]] = {
    PrepareJob: _Prepared,
    PrepareNetworkJob: _PreparedNetwork,
}


def check_seconds(
    said: Mapping[str, float | None], *, passed: timedelta, at_most: timedelta = CLOCKS_APART
) -> None:
    """Hold times that a worker names against the time since its attempt began.

    Raises:
        ReportRefused: a time is longer.
    """
    most = max(0.0, (passed + at_most).total_seconds())
    _refuse(
        Fault(name, f"{seconds:g} is longer than the attempt has run; allowed is up to {most:.0f}")
        for name, seconds in said.items()
        if seconds is not None and seconds > most
    )


def check_epoch(body: EpochReport, job: TrialJob, *, reported: Callable[[int], bool]) -> None:
    """Hold one epoch against its job.

    Args:
        body: what was said.
        job: the attempt's.
        reported: whether an epoch was reported, by this attempt or an earlier one.

    Raises:
        ReportRefused: it is outside the budget or out of order, or a value cannot be.
    """
    first, last = job.first_epoch, job.last_epoch
    if not first <= body.epoch <= last:
        message = f"{body.epoch} is outside of the job; allowed are {first}..{last}"
        _refuse([Fault("epoch", message)])
    if body.epoch > first and not reported(body.epoch - 1):
        message = f"{body.epoch} is out of order; epoch {body.epoch - 1} has to be reported before"
        _refuse([Fault("epoch", message)])
    faults = _outside("validation", body.validation, job.ranges[job.task.metric.name])
    if (body.train_loss is None) != (body.epoch == 0):
        allowed = "null, for nothing is trained" if body.epoch == 0 else "a number"
        message = f"{body.train_loss} at epoch {body.epoch}; allowed is {allowed}"
        faults.append(Fault("train_loss", message))
    values = body.model_dump(
        include={
            "train_loss",
            "validation_loss",
            "spectral_margin",
            "gradient_first",
            "gradient_last",
        }
    )
    for name, value in values.items():
        faults += _outside(name, value, NOT_NEGATIVE)
    _refuse(faults)


def check_training(body: Completion, job: TrialJob, curve: Mapping[int, float]) -> None:
    """Hold the end of a trial against its job and its curve.

    Args:
        body: what was said.
        job: the attempt's.
        curve: the validation metric of the epochs that were reported.

    Raises:
        ReportRefused: the outcome is none that this job and this curve can have.
    """
    metric, ranges = job.task.metric.name, job.ranges
    faults = [
        *_outside("quality", body.quality, ranges[metric]),
        *_outside("test_quality", body.test_quality, ranges[metric]),
    ]
    for name, value in body.test_metrics.items():
        where = f"test_metrics.{_shown(name)}"
        if name not in ranges:
            known = ", ".join(ranges)
            faults.append(Fault(where, f"the task measures nothing of this name; allowed: {known}"))
        else:
            faults += _outside(where, value, ranges[name])
    trained = body.epochs_trained
    if trained > job.last_epoch or (trained > 0 and trained not in curve):
        allowed = max((epoch for epoch in curve if epoch <= job.last_epoch), default=0)
        message = f"{trained} is more than was reported; allowed is up to {allowed}"
        faults.append(Fault("epochs_trained", message))
    if body.outcome == "complete" and trained != job.last_epoch and not job.may_end_early:
        message = f"{trained} is not the budget of a complete trial; allowed is {job.last_epoch}"
        faults.append(Fault("epochs_trained", message))
    if body.outcome in ("complete", "stopped", "paused"):
        faults += _best_fault(body, curve, metric)
    _refuse(faults)


def check_prepared(body: Completion, job: PrepareJob | PrepareNetworkJob) -> None:
    """Hold what was found in a task's data against the task.

    Raises:
        ReportRefused: it is of another task, or says something else than what is to be found.
    """
    if body.outcome != "complete":
        return
    try:
        found = _PREPARED[type(job)].model_validate(body.prepared)
    except ValidationError as error:
        raise ReportRefused(_faults(error, "prepared")) from error
    metric = job.task.metric
    _refuse(
        _differs("prepared.metric", found.metric, metric.name)
        + _differs("prepared.baseline", found.baseline, metric.baseline)
    )


def check_measurement(body: MeasurementReport, job: AnyMeasureJob) -> None:
    """Hold a measurement against its job.

    Raises:
        ReportRefused: it is of another shape or device, its record says something else than it
            does, or the record's counts are not those of the model.
    """
    shapes = {(shape.trial, shape.shape_key): shape for shape in job.shapes}
    shape = shapes.get((body.trial, body.shape_key))
    if shape is None:
        known = ", ".join(str(shape.trial) for shape in job.shapes)
        message = f"trial {body.trial} has no such shape in this job; its trials are {known}"
        raise ReportRefused([Fault("shape_key", message)])
    try:
        record = ThroughputRecord.model_validate(body.record)
    except ValidationError as error:
        raise ReportRefused(_faults(error, "record")) from error
    faults = [] if job.device is None else _differs("device", body.device, job.device)
    for name, found, right in (
        ("device", record.device, body.device),
        ("mode", record.mode, job.mode),
        ("batch_size", record.batch_size, job.batch_size),
        ("sequence_length", record.sequence_length, _steps(job, shape)),
        ("threads", record.threads, job.threads),
        ("samples_per_second.median", record.samples_per_second.median, body.samples_per_second),
        ("ratio.median", record.ratio.median, body.ratio),
        ("runtime", record.runtime, job.runtime),
        ("latency_p50", record.latency_p50, body.latency_p50),
        ("latency_p99", record.latency_p99, body.latency_p99),
        ("parameters", record.parameters, shape.parameter_count()),
        ("dense_parameters", record.dense_parameters, shape.dense_parameter_count()),
    ):
        faults += _differs(f"record.{name}", found, right)
    faults += _latency_faults(record, job)
    for name in ("samples_per_second", "dense_samples_per_second", "ratio"):
        estimate: Estimate = getattr(record, name)
        if not 0 < estimate.low <= estimate.median <= estimate.high:
            message = (
                f"{estimate.low:g}..{estimate.high:g} is no interval above 0 around its median"
            )
            faults.append(Fault(f"record.{name}", f"{message}, {estimate.median:g}"))
    _refuse(faults)


def _steps(job: AnyMeasureJob, shape: Shape | NetworkShape) -> int:
    if isinstance(job, MeasureJob) and isinstance(shape, Shape):
        return job.steps_of(shape)
    return 1


def _latency_faults(record: ThroughputRecord, job: AnyMeasureJob) -> list[Fault]:
    """What is wrong with how long single calls are said to have taken."""
    half, most = record.latency_p50, record.latency_p99
    if job.latency != (half is not None and most is not None):
        allowed = "a number" if job.latency else "null, for nobody asked"
        return [Fault("record.latency_p50", f"{half} to {most}; allowed is {allowed}")]
    if half is not None and most is not None and not 0 < half <= most:
        return [Fault("record.latency_p99", f"{most:g}; allowed is {half:g} or more, above 0")]
    return []


def _best_fault(body: Completion, curve: Mapping[int, float], metric: str) -> list[Fault]:
    """What is wrong with the epoch that a trial's numbers are said to be of."""
    is_tested = body.outcome != "paused"
    missing = [
        Fault(name, f"null; a trial that is {body.outcome} has one")
        for name in ("quality", "best_epoch", *(["test_quality"] if is_tested else []))
        if getattr(body, name) is None
    ]
    if missing or body.best_epoch is None or body.quality is None:
        return missing
    if body.best_epoch > body.epochs_trained or body.best_epoch not in curve:
        known = ", ".join(str(epoch) for epoch in sorted(curve)[-3:]) or "none"
        message = f"{body.best_epoch} was not reported; the last ones that were are {known}"
        return [Fault("best_epoch", message)]
    faults = _differs("quality", body.quality, curve[body.best_epoch])
    if is_tested:
        own = body.test_metrics.get(metric, body.test_quality)
        faults += _differs(f"test_metrics.{metric}", own, body.test_quality)
    return faults


def _outside(path: str, value: float | None, allowed: Range) -> list[Fault]:
    if value is None or value in allowed:
        return []
    return [Fault(path, f"{value:g}; allowed are {allowed}")]


def _differs(path: str, found: object, right: object) -> list[Fault]:
    if isinstance(found, float) and isinstance(right, float | int):
        same = math.isclose(found, right, rel_tol=1e-9)
    else:
        same = found == right
    return [] if same else [Fault(path, f"{_shown(str(found))}; allowed is {right}")]


def _faults(error: ValidationError, inside: str) -> list[Fault]:
    return [
        Fault(_shown(".".join(map(str, (inside, *fault["loc"])))), fault["msg"])
        for fault in error.errors(include_url=False, include_input=False)
    ]


def _refuse(faults: Iterable[Fault]) -> None:
    found = list(faults)
    if found:
        raise ReportRefused(found)


def _shown(text: str) -> str:
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
