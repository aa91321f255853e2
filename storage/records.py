"""What the repositories return: frozen values, detached from any session.

Times are aware datetimes in UTC. `Json` values are what `json.loads` gives.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import datetime
from enum import StrEnum
from typing import Any, Generic, TypeAlias, TypeVar

from storage.endings import AttemptCause, StudyCause, TrialCause, sentence

T = TypeVar("T")

LOCAL = "local"
"""The tenant of all that was made without an API key."""

Json: TypeAlias = "bool | int | float | str | list[Json] | dict[str, Json] | None"


class StudyState(StrEnum):
    """Where a study stands; the last three are ends."""

    QUEUED = "queued"
    RUNNING = "running"
    PAUSED = "paused"
    FINISHED = "finished"
    CANCELLED = "cancelled"
    FAILED = "failed"

    @property
    def has_ended(self) -> bool:
        """Whether nothing more happens to the study by itself."""
        return self in (StudyState.FINISHED, StudyState.CANCELLED, StudyState.FAILED)


class TrialOrigin(StrEnum):
    """Who named a trial's configuration."""

    SAMPLER = "sampler"
    PRESET = "preset"
    USER = "user"
    ORIGINAL = "original"
    """The model that the study compresses: it was uploaded, and is not trained."""
    CONFIRMATION = "confirmation"
    """The study itself: a point of the front, trained again with another seed."""
    FINE_TUNING = "fine_tuning"
    """The study itself: a point of the front, whose numbers are trained further."""

    @property
    def follows_search(self) -> bool:
        """Whether the study adds such trials when the search is over, beyond its budget."""
        return self in (TrialOrigin.CONFIRMATION, TrialOrigin.FINE_TUNING)


class TrialState(StrEnum):
    """Where a trial stands; all but the first three are outcomes, and final."""

    QUEUED = "queued"
    RUNNING = "running"
    PAUSED = "paused"
    """It has trained some epochs and holds no slot; it may go on from its stored state."""
    COMPLETE = "complete"
    STOPPED = "stopped"
    INFEASIBLE = "infeasible"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def has_ended(self) -> bool:
        """Whether this is an outcome, and so final."""
        return self not in (TrialState.QUEUED, TrialState.RUNNING, TrialState.PAUSED)


class ThroughputKind(StrEnum):
    """What is known of a trial's speed."""

    MEASURED = "measured"
    PREDICTED = "predicted"
    NONE = "none"


class AttemptState(StrEnum):
    """Where an attempt stands: working, ended by its own report, or lost (killed, lease over)."""

    ASSIGNED = "assigned"
    """It has a lease and is at its machine, which begins it when the one before has ended."""
    RUNNING = "running"
    ENDED = "ended"
    LOST = "lost"

    @property
    def is_open(self) -> bool:
        """Whether the attempt holds a lease."""
        return self in (AttemptState.ASSIGNED, AttemptState.RUNNING)


class AttemptKind(StrEnum):
    """What an attempt does: fetch and check the data, measure throughput, or train a trial."""

    PREPARE = "prepare"
    MEASURE = "measure"
    TRAIN = "train"


class BookingState(StrEnum):
    """How far an attempt on a joined machine is."""

    OFFERED = "offered"
    """The machine is sent it until it says that it has it."""
    RUNNING = "running"
    EXITED = "exited"
    """The place is free again; how the attempt ended waits for its coordinator."""


class CommandKind(StrEnum):
    """What the API asks of the coordinator, which alone speaks to Optuna."""

    FORGET = "forget"
    """Delete Optuna's side of a study that is gone."""
    ENQUEUE = "enqueue"
    """Make a trial of what a user named."""
    MEASURE = "measure"
    """Measure a trial's throughput again."""


@dataclass(frozen=True, kw_only=True)
class StudyEnding:
    """Why no further trial of a study is begun, once none is; running ones stop soon."""

    ending_cause: StudyCause | None = None
    ending_detail: str | None = None

    @property
    def ending(self) -> str | None:
        """The same as a sentence: `cancelled by ...`, `budget: ...`."""
        return sentence(self.ending_cause, self.ending_detail)


@dataclass(frozen=True, kw_only=True)
class StudyRecord(StudyEnding):
    """One study: the user's document and where it stands."""

    id: str
    tenant: str = LOCAL
    name: str
    """What people call it; the document keeps the name that it was sent with."""
    tags: tuple[str, ...] = ()
    notes: str = ""
    state: StudyState
    state_cause: StudyCause | None = None
    """Why it stands there, where there is something to say."""
    state_detail: str | None = None
    spec: dict[str, Json]
    created_at: datetime
    started_at: datetime | None = None
    finished_at: datetime | None = None
    running_seconds: float = 0.0
    """Time spent in state `running`, over all restarts; the coordinator adds to it."""
    prepared: dict[str, Json] | None = None
    """What the prepare job found (baseline, sample counts, file digests); null until it ran."""
    reference_point: dict[str, float] | None = None
    last_event: int = 0
    data_version: int = field(default=0, compare=False)
    """Grows with every change of what fronts and figures follow from: outcomes of trials, their
    throughput and files, the study's state and document. Equal versions, each read in one
    transaction with the rows, mean equal rows."""

    @property
    def state_reason(self) -> str | None:
        """Why it stands there, as a sentence."""
        # That it failed is what its state says.
        failed = self.state_cause is StudyCause.FAILED
        return sentence(None if failed else self.state_cause, self.state_detail)


@dataclass(frozen=True, kw_only=True)
class StudyLabels:
    """What people call a study and write of it; null is what a change leaves as it is."""

    name: str | None = None
    tags: tuple[str, ...] | None = None
    notes: str | None = None


@dataclass(frozen=True, kw_only=True)
class TrialOutcome:
    """What comes of a trial when it ends; the defaults are those of one that has not."""

    cause: TrialCause | None = None
    detail: str | None = None
    violation: float | None = None
    """By how much the broken limit was exceeded (> 0), for infeasible trials."""
    quality: float | None = None
    test_quality: float | None = None
    test_metrics: dict[str, float] = field(default_factory=dict[str, float])
    """All that the task measures on the test split, by name."""
    best_epoch: int | None = None

    @classmethod
    def of(cls, source: object, **given: Any) -> "TrialOutcome":
        """An outcome of the fields that a source has under the same names, but for those given."""
        names = (one.name for one in fields(TrialOutcome))
        found = {name: getattr(source, name) for name in names if hasattr(source, name)}
        return TrialOutcome(**{**found, **given})

    @property
    def reason(self) -> str | None:
        """Why it ended, as a sentence."""
        return sentence(self.cause, self.detail)


@dataclass(frozen=True, kw_only=True)
class TrialRecord(TrialOutcome):
    """One trial: a configuration, and what came of it.

    `number` counts from 0 within its study, and is Optuna's number too.
    """

    study_id: str
    number: int
    state: TrialState
    architecture: str
    parametrization: str
    hyperparameters: dict[str, Json]
    """Dimension name -> the value that the model has (cut to what its layers hold)."""
    drawn: dict[str, Json]
    """Dimension name -> the value as Optuna knows it."""
    spec: dict[str, Json]
    """The whole trial document: model, training, seed."""
    parameters: int
    dense_parameters: int
    shape_key: str
    """Trials with the same key run the same computation at inference, whatever their numbers."""
    origin: TrialOrigin
    repeats: int | None = None
    """The trial whose configuration this one trains with another seed, or whose result it has."""
    continues: int | None = None
    """The trial whose checkpoint this one starts from."""
    stopping: dict[str, Json] | None = None
    """Why early stopping ended it: the rule, the epoch, and what it decided by."""
    stretch: dict[str, Json] | None = None
    """What it was last chosen for, where a sampler decides how far trials train: `decision`, its
    number within the study, `number` of the stretch, from 1, `from` and `until` which epoch, the
    `index` and the `price` that it was chosen by, and `limits`: `[epoch, error]`, the largest log
    error with which it goes on after an epoch, as decision `judged` has it; null for a trial that
    is trained to its end."""
    pausing: dict[str, Json] | None = None
    """Why it is paused, or is about to be: the `epoch` and the `reason`."""
    epochs_trained: int = 0
    throughput: float | None = None
    throughput_ratio: float | None = None
    latency_p50: float | None = None
    """Seconds of one call, the median; null where nobody asked for it."""
    latency_p99: float | None = None
    bytes: int | None = None
    """Of the file that a user takes away; null where nobody asked for it."""
    measurement_id: str | None = None
    predicted: dict[str, list[float]] = field(default_factory=dict[str, list[float]])
    """What it was let train on while it was not measured, and what the sampler was told: field
    (`throughput`, `throughput_ratio`, `latency_p50`, `latency_p99`) -> the value, and the ends of
    the interval where it lies with 95 %. Never changed; empty for a trial that was measured first,
    and where nobody asks for speed."""
    dispatched: bool = False
    """Whether an attempt was ever started; refused draws never are and cost no budget."""
    created_at: datetime
    started_at: datetime | None = None
    finished_at: datetime | None = None
    told_at: datetime | None = None
    artifacts: Mapping[str, str] = field(default_factory=dict[str, str])
    """Role (`checkpoint`, `report`, `resume`) -> sha256."""
    exports: dict[str, Json] = field(default_factory=dict[str, Json])
    """Role of a file made of the checkpoint -> what came of making it, see `search.exports`."""

    @property
    def resumes_from(self) -> int:
        """The epoch from which it trains when it is given a slot; 0: from its beginning."""
        return self.epochs_trained if self.state == TrialState.PAUSED else 0

    @property
    def throughput_kind(self) -> ThroughputKind:
        """Whether its speed was measured, or is predicted alone."""
        if self.measurement_id is not None:
            return ThroughputKind.MEASURED
        return ThroughputKind.PREDICTED if self.predicted else ThroughputKind.NONE


@dataclass(frozen=True, kw_only=True)
class WarmStartTrialRecord:
    """A trial of another study as it stood when a study was submitted, in the new one's words."""

    source_study: str
    source_trial: int
    state: TrialState
    architecture: str
    parametrization: str
    hyperparameters: dict[str, Json]
    drawn: dict[str, Json]
    """Dimension of the new study -> the value that gives this configuration."""
    spec: dict[str, Json]
    parameters: int
    dense_parameters: int
    shape_key: str
    quality: float | None
    throughput: float | None
    throughput_ratio: float | None
    latency_p50: float | None
    latency_p99: float | None
    bytes: int | None
    curve: list[float]
    """The validation metric after epoch 1, 2, ...; empty for a trial that has a rank."""
    rank: float | None = None
    """In (0, 1), the lower the better, of a trial of another task: (rank - 1/2) / n among those of
    its study. Its values do not compare with the new study's, and it has no place in that space."""


@dataclass(frozen=True, kw_only=True)
class AttemptRecord:
    """One lease: a numbered try at a job. `trial` is null for jobs of the whole study."""

    id: str
    study_id: str
    kind: AttemptKind
    trial: int | None
    number: int
    """Counts from 1 within (study, kind, trial)."""
    state: AttemptState
    cause: AttemptCause | None = None
    """Why it ended."""
    detail: str | None = None
    job: dict[str, Json]
    slot: str
    slot_share: float
    """Share of a device, or cores, that the slot stands for; device hours are share x time."""
    device: str
    lease_until: datetime
    started_at: datetime
    ended_at: datetime | None = None
    stood_still_seconds: float = 0.0
    """Time it waited at batch boundaries for a measurement; counts against no budget."""
    machine: str | None = None
    """The name of the machine where it runs."""

    @property
    def reason(self) -> str | None:
        """Why it ended, as a sentence."""
        return sentence(self.cause, self.detail)


@dataclass(frozen=True, kw_only=True)
class MetricRecord:
    """One epoch of a trial's learning curve."""

    epoch: int
    """Counts from 1; 0 is what a trial starts from that trains a trained network on."""
    train_loss: float | None
    """Null at epoch 0."""
    validation: float
    spectral_margin: float | None
    gradient_first: float | None
    """`|dL/dh|` before the first step or layer, of one batch at the epoch's end."""
    gradient_last: float | None
    """`|dL/dh|` after the last one."""
    recovered_batches: int
    """Batches whose loss or gradient was NaN or Inf, and that training went on from."""
    seconds: float
    attempt: int
    validation_loss: float | None = None
    """By which ties of `validation` are broken; null where it is not known."""
    generalization_term: float | None = None
    """`ln B(w)`, which models of one task are compared by; null where it is not defined."""
    probes: Sequence[Json] | None = None
    """Gradients of single updates, `{"update", "first", "last"}` each; null: none was asked for."""


@dataclass(frozen=True, kw_only=True)
class MeasurementRecord:
    """One throughput measurement with its circumstances; `samples_per_second` is the median."""

    id: str
    study_id: str
    trial: int
    """The trial it was made for; others of the same shape reuse it."""
    shape_key: str
    device: str
    samples_per_second: float
    ratio: float
    """Median of the per-round ratios to the dense baseline."""
    latency_p50: float | None = None
    latency_p99: float | None = None
    """Seconds of one call; null where nobody asked for it."""
    record: dict[str, Json]
    seconds: float
    """How long the measurement lock was held for it."""
    created_at: datetime


@dataclass(frozen=True, kw_only=True)
class CollectionRecord:
    """Studies that one document made, one for each of its data sets."""

    id: str
    tenant: str
    name: str
    source: dict[str, Json]
    """The document as it was sent."""
    budget: dict[str, Json] | None
    """What its studies may take together; null: each has its own budget alone."""
    created_at: datetime


@dataclass(frozen=True, kw_only=True)
class CollectionStudyRecord:
    """A study's place in a collection."""

    collection_id: str
    study_id: str
    position: int
    """Counts from 0, in the order of the document."""
    row: str
    """What tells it from the collection's other studies: the name of its data set."""
    seed: int


@dataclass(frozen=True, kw_only=True)
class EventRecord:
    """One event of a study; `number` counts from 1 without gaps."""

    study_id: str
    number: int
    kind: str
    payload: dict[str, Json]
    created_at: datetime


@dataclass(frozen=True, kw_only=True)
class ArtifactRecord:
    """Stored bytes, named by their digest."""

    sha256: str
    size: int
    created_at: datetime


@dataclass(frozen=True, kw_only=True)
class UploadRecord:
    """What a user uploaded: a data set or a model."""

    id: str
    name: str
    """As the user calls it; never part of a path."""
    sha256: str
    """Of a data set's file (its training part) as it came, or of a model's stored file."""
    size: int
    """Bytes of a data set's files as they came, both together, or of a model's stored file."""
    fingerprint: str
    """SHA-256 of the files' digests, their format and the options: equal ones are one upload."""
    options: dict[str, Json]
    """How the files were to be read; what the user said that they cannot."""
    created_at: datetime

    @property
    def digests(self) -> tuple[str, ...]:
        """The artifacts that the upload consists of, each once."""
        return (self.sha256,)


@dataclass(frozen=True, kw_only=True)
class DatasetRecord(UploadRecord):
    """A user's data, as they came and as they were read."""

    suffix: str
    """Of the files' names, with its dot; says their format."""
    test_sha256: str | None
    """Of the file with the test part; null where all came in one."""
    facts: dict[str, Json]
    """What they hold."""
    preview: list[Json]
    """The first few samples, shortened."""
    container_sha256: str
    """Of what the files were read into."""

    @property
    def digests(self) -> tuple[str, ...]:
        """The artifacts that the data set consists of, each once."""
        named = (self.sha256, self.test_sha256, self.container_sha256)
        return tuple(dict.fromkeys(digest for digest in named if digest is not None))


@dataclass(frozen=True, kw_only=True)
class UploadedModelRecord(UploadRecord):
    """A trained network that a user uploaded: a checkpoint of our own form, or an ONNX file."""

    source: str
    """What the file was: `reflectory`, `torch` or `onnx`."""
    file_sha256: str
    """Of the file as it came; of the first two it is not kept."""
    file_size: int
    spec: dict[str, Json]
    """The model in full (architecture, dense weights, signature), or the facts of the network."""
    notes: list[Json]
    """Sentences on what was changed on the way from the file to what is stored."""
    parameters: int
    """Numbers of all weights."""


@dataclass(frozen=True, kw_only=True)
class ExchangeRecord:
    """One word with the sampler: the study's order of asks and tells, from 1."""

    position: int
    kind: str
    """`ask` or `tell`."""
    trial: int


@dataclass(frozen=True, kw_only=True)
class CommandRecord:
    """Something that the API asks of the coordinator."""

    id: str
    study_id: str
    kind: CommandKind
    payload: dict[str, Json]
    created_at: datetime
    trial: int | None = None
    """The number of the trial that came of it; null until one did."""


@dataclass(frozen=True, kw_only=True)
class DeliveryRecord:
    """Something to tell a user's own server, and how far that is."""

    id: str
    """Sent with it, the same however often: receivers tell repetitions by it."""
    study_id: str
    url: str
    body: dict[str, Json]
    tries: int
    """How often sending was begun."""
    due_at: datetime | None
    """When it is sent next; null once it was delivered or given up."""
    delivered_at: datetime | None
    reason: str | None
    """Why the last try failed."""
    created_at: datetime


@dataclass(frozen=True, kw_only=True)
class TrialCounts:
    """How many trials of a study are in each state, and how many were ever dispatched."""

    by_state: Mapping[TrialState, int]
    dispatched: int
    refused: int
    """Infeasible ones that never were: they cost no budget."""
    under_way: int = 0
    """Of the dispatched, those that have not ended."""
    confirmations: int = 0
    """Those that the study adds when the search is over, which repeat points of the front or train
    them further; not among the dispatched."""
    untold: int = 0
    """Those that ended and that the sampler does not know of."""
    waiting_repeats: int = 0
    """Those that wait, of a configuration that an earlier trial has."""

    @property
    def total(self) -> int:
        """All trials, refused draws included."""
        return sum(self.by_state.values())

    @property
    def unknown(self) -> int:
        """Trials of whose outcome the sampler does not know: waiting, running and untold ones.

        Not those that are paused: there may be many, and nothing is known of when they go on.
        """
        at_work = (TrialState.QUEUED, TrialState.RUNNING)
        return sum(self.by_state.get(state, 0) for state in at_work) + self.untold


@dataclass(frozen=True, kw_only=True)
class Page(Generic[T]):
    """One page of a keyset-paged list; `next_cursor` is null on the last."""

    items: list[T]
    next_cursor: str | None
