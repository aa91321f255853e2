"""Trials, their attempts, measurements and learning curves as the API answers with them."""

from datetime import datetime
from typing import Any, Literal

from pydantic import Field

from models.spec import Spec
from search.documents.gradients import ProbedGradient
from service.api.schema import ByName
from storage.records import AttemptState, ThroughputKind, TrialOrigin, TrialState

_ENDED = frozenset(state for state in TrialState if state.has_ended)


def _is_null(value: object) -> bool:
    """Whether an answer leaves a field out."""
    return value is None


class TrialValues(ByName):
    """All objectives; null where a trial has no value (yet), or its study does not ask for it."""

    quality: float | None = Field(description="the task's metric on the validation split")
    parameters: int
    throughput: float | None = Field(description="samples per second")
    bytes: int | None = Field(description="of the file that the study's `export` names")
    latency: float | None = Field(description="seconds of one call, the median: `latency_p50`")


class TrialLinks(ByName):
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
    onnx_stream: str | None = Field(
        default=None, description="null until it was made, and for models without a state"
    )
    card: str | None = Field(default=None, description="what the model is, for people")
    folder: str | None = Field(
        default=None, description="a ZIP file of all files; null where there are none"
    )
    log: str | None


class AttemptDocument(Spec):
    """One try at a trial."""

    number: int
    state: AttemptState = Field(
        description="`lost`: interrupted before its end, with its study, server or machine, or by "
        "a fault; another one goes on from what it stored"
    )
    reason: str | None
    slot: str
    machine: str | None = Field(default=None, description="the name of the machine where it runs")
    device: str
    started_at: datetime
    ended_at: datetime | None
    stood_still_seconds: float


class PredictedDocument(Spec):
    """What was predicted, before anything was measured."""

    value: float
    low: float = Field(description="of the interval that a measurement lies in with 95 %")
    high: float


class TrialDocument(Spec):
    """One configuration, and what came of it."""

    number: int
    outcome: TrialState
    reason: str | None
    architecture: str
    parametrization: str
    hyperparameters: dict[str, Any]
    values: TrialValues
    outside: bool = Field(
        default=False,
        description="whether one of its values, as far as they are known, lies outside the study's "
        "region of interest; false without one",
    )
    test_quality: float | None
    test_metrics: dict[str, float] = Field(
        description="all that the task measures on the test split, at the best epoch"
    )
    origin: TrialOrigin = Field(
        description="who named the configuration: the sampler, a preset, the user, or the study "
        "itself, which confirms points of its front or trains them further; of an original, "
        "whoever trained it"
    )
    repeats: int | None = Field(description="the trial whose configuration this one repeats")
    continues: int | None = Field(
        description="the trial whose checkpoint or file this one started from; its own epochs "
        "count from 1"
    )
    stopping: dict[str, Any] | None = Field(
        description="why early stopping ended it: the rule, the epoch and what it decided by"
    )
    stretch: dict[str, Any] | None = Field(
        default=None,
        description="what the sampler last chose the trial for, where it says how far trials "
        "train: the `decision`, its number within the study; `number`, how often it was chosen; "
        "`from` and `until` which epoch; the `index`, hypervolume expected for each unit of "
        "`price`; and `limits`, pairs of an epoch and the largest log error with which it goes on, "
        "as the decision `judged` has it",
    )
    pausing: dict[str, Any] | None = Field(
        default=None, description="why it is paused, or is about to be: the epoch and the reason"
    )
    throughput_ratio: float | None = Field(
        description="to the dense baseline, measured in turn with it"
    )
    latency_p50: float | None = Field(description="seconds of one call, the median")
    latency_p99: float | None = Field(description="seconds that 99 of 100 calls took at most")
    throughput_kind: ThroughputKind = Field(
        default=ThroughputKind.NONE,
        description="whether throughput and latency were measured, as on every front, or predicted "
        "alone",
    )
    predicted: dict[str, PredictedDocument] = Field(
        default_factory=dict[str, PredictedDocument],
        description="of a trial that trained before it was measured, what the sampler was told: "
        "`throughput`, `throughput_ratio` and, where it counts, `latency_p50` and `latency_p99`",
    )
    dense_parameters: int = Field(description="of the dense baseline")
    best_epoch: int | None
    epochs_trained: int
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    attempts: tuple[AttemptDocument, ...]
    links: TrialLinks
    missing: dict[str, str] = Field(
        default_factory=dict[str, str],
        description="by kind of file, why there is none, or none before it is asked for",
    )

    @property
    def ended(self) -> bool:
        """Whether nothing more will happen in it."""
        return self.outcome in _ENDED


class EnqueuedLinks(ByName):
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
    latency_p50: float | None
    latency_p99: float | None
    seconds: float = Field(description="how long the device was held for it")
    record: dict[str, Any]
    created_at: datetime


class AgainDocument(Spec):
    """Another measurement of a trial, which was asked for."""

    state: Literal["waiting", "running", "failed"]
    asked_at: datetime
    reason: str | None = Field(description="why the last try came to nothing")


class MeasureLinks(ByName):
    """Where the records of a trial are."""

    trial: str


class MeasureDocument(Spec):
    """What was asked for: the trial lists the new record as soon as it is there."""

    measurement: AgainDocument
    links: MeasureLinks


class TrialDetail(TrialDocument):
    """A trial with its whole specification and its throughput records."""

    spec: dict[str, Any]
    bytes: dict[str, int] = Field(
        default_factory=dict[str, int],
        description="by kind of file, its size; of those that are there. Beside a C file "
        "stand `c_flash`, its code and tables at -Os, and `c_state`, what its caller keeps",
    )
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
    validation_loss: float | None = Field(
        default=None,
        exclude_if=_is_null,
        description="the task's loss on validation data, by which ties of the metric are broken",
    )
    spectral_margin: float | None
    gradient_first: float | None = Field(
        description="|dL/dh| before the first step or layer, in the epoch's last batch"
    )
    gradient_last: float | None = Field(description="|dL/dh| after the last one")
    recovered_batches: int = Field(
        description="batches that `training.nan_recovery` stepped in for"
    )
    seconds: float
    generalization_term: float | None = Field(
        default=None,
        exclude_if=_is_null,
        description="ln B(w) of a recurrent network of one matrix, to compare models of one task "
        "and never as a bound",
    )
    probes: tuple[ProbedGradient, ...] | None = Field(
        default=None,
        exclude_if=_is_null,
        description="of single updates, where `training.probe_every` asks for them",
    )


class ExportDocument(Spec):
    """A file that is not there yet."""

    detail: str
