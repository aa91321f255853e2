"""The tables; their names are not Optuna's, whose tables may be in the same database.

Rows never leave this package: repositories turn them into the records of `storage.records`.
"""

from datetime import datetime

from sqlalchemy import (
    BigInteger,
    ForeignKey,
    ForeignKeyConstraint,
    Index,
    Integer,
    MetaData,
    UniqueConstraint,
    text,
)
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from storage.columns import CleanText, FiniteFloat, Instant, document, word
from storage.records import (
    LOCAL,
    AttemptKind,
    AttemptState,
    BookingState,
    ErrandKind,
    Json,
    StudyState,
    TrialOrigin,
    TrialState,
)


class Table(DeclarativeBase):
    """Base of the mapped classes; constraints are named, so that later migrations can name them."""

    metadata = MetaData(
        naming_convention={
            "ix": "ix_%(table_name)s_%(column_0_N_name)s",
            "uq": "uq_%(table_name)s_%(column_0_N_name)s",
            "fk": "fk_%(table_name)s_%(referred_table_name)s",
            "pk": "pk_%(table_name)s",
        }
    )
    type_annotation_map = {  # noqa: RUF012 - SQLAlchemy's own declaration, read once
        str: CleanText(),
        float: FiniteFloat(),
        datetime: Instant(),
        StudyState: word(StudyState),
        TrialState: word(TrialState),
        TrialOrigin: word(TrialOrigin),
        AttemptKind: word(AttemptKind),
        AttemptState: word(AttemptState),
        BookingState: word(BookingState),
        ErrandKind: word(ErrandKind),
    }


class StudyRow(Table):
    """A study, the root of all else; its counters number its events and exchanges without gaps."""

    __tablename__ = "study"
    __table_args__ = (
        UniqueConstraint("tenant", "idempotency_key"),
        Index(None, "tenant", "created_at", "id"),
        Index(None, "state"),
    )

    id: Mapped[str] = mapped_column(primary_key=True)
    tenant: Mapped[str] = mapped_column(server_default=LOCAL)
    name: Mapped[str]
    state: Mapped[StudyState]
    state_reason: Mapped[str | None]
    spec: Mapped[dict[str, Json]] = mapped_column(document())
    created_at: Mapped[datetime]
    started_at: Mapped[datetime | None]
    finished_at: Mapped[datetime | None]
    running_seconds: Mapped[float]
    ending: Mapped[str | None]
    prepared: Mapped[dict[str, Json] | None] = mapped_column(document())
    reference_point: Mapped[dict[str, float] | None] = mapped_column(document())
    last_event: Mapped[int]
    last_exchange: Mapped[int]
    data_version: Mapped[int] = mapped_column(server_default=text("0"))
    owner: Mapped[str | None]
    owned_until: Mapped[datetime | None]
    idempotency_key: Mapped[str | None]
    body_digest: Mapped[str | None]


class TrialRow(Table):
    """A trial: a configuration and its outcome."""

    __tablename__ = "trial"
    __table_args__ = (
        # Trials are counted by these columns alone, without a look at their documents.
        Index(
            "ix_trial_counts",
            *("study_id", "state", "dispatched", "origin", "told_at", "finished_at"),
        ),
        Index(None, "study_id", "data_version"),
        # The few that ended and that the sampler has not heard of yet.
        Index(
            "ix_trial_untold",
            "study_id",
            "finished_at",
            sqlite_where=text("told_at IS NULL AND finished_at IS NOT NULL"),
            postgresql_where=text("told_at IS NULL AND finished_at IS NOT NULL"),
        ),
    )

    study_id: Mapped[str] = mapped_column(
        ForeignKey("study.id", ondelete="CASCADE"), primary_key=True
    )
    number: Mapped[int] = mapped_column(Integer, primary_key=True, autoincrement=False)
    state: Mapped[TrialState]
    reason: Mapped[str | None]
    architecture: Mapped[str]
    parametrization: Mapped[str]
    hyperparameters: Mapped[dict[str, Json]] = mapped_column(document())
    drawn: Mapped[dict[str, Json]] = mapped_column(document())
    spec: Mapped[dict[str, Json]] = mapped_column(document())
    parameters: Mapped[int] = mapped_column(BigInteger)
    dense_parameters: Mapped[int] = mapped_column(BigInteger)
    shape_key: Mapped[str]
    violation: Mapped[float | None]
    quality: Mapped[float | None]
    test_quality: Mapped[float | None]
    test_metrics: Mapped[dict[str, Json] | None] = mapped_column(document())
    origin: Mapped[TrialOrigin]
    repeats: Mapped[int | None]
    continues: Mapped[int | None]
    stopping: Mapped[dict[str, Json] | None] = mapped_column(document())
    best_epoch: Mapped[int | None]
    epochs_trained: Mapped[int]
    throughput: Mapped[float | None]
    throughput_ratio: Mapped[float | None]
    measurement_id: Mapped[str | None]
    dispatched: Mapped[bool]
    created_at: Mapped[datetime]
    started_at: Mapped[datetime | None]
    finished_at: Mapped[datetime | None]
    told_at: Mapped[datetime | None]
    data_version: Mapped[int] = mapped_column(server_default=text("0"))
    """The version of the study's data that came of the trial's last change."""


class ForeignTrialRow(Table):
    """A copy of another study's trial, which the study's sampler starts with."""

    __tablename__ = "foreign_trial"

    study_id: Mapped[str] = mapped_column(
        ForeignKey("study.id", ondelete="CASCADE"), primary_key=True
    )
    position: Mapped[int] = mapped_column(Integer, primary_key=True, autoincrement=False)
    source_study: Mapped[str]
    source_trial: Mapped[int]
    state: Mapped[TrialState]
    architecture: Mapped[str]
    parametrization: Mapped[str]
    hyperparameters: Mapped[dict[str, Json]] = mapped_column(document())
    drawn: Mapped[dict[str, Json]] = mapped_column(document())
    spec: Mapped[dict[str, Json]] = mapped_column(document())
    parameters: Mapped[int] = mapped_column(BigInteger)
    dense_parameters: Mapped[int] = mapped_column(BigInteger)
    shape_key: Mapped[str]
    quality: Mapped[float | None]
    throughput: Mapped[float | None]
    throughput_ratio: Mapped[float | None]
    curve: Mapped[list[float]] = mapped_column(document())


class AttemptRow(Table):
    """A lease; `device_seconds` grows with its worker's words, or else is written when it ends."""

    __tablename__ = "attempt"
    __table_args__ = (
        ForeignKeyConstraint(
            ["study_id", "trial"], ["trial.study_id", "trial.number"], ondelete="CASCADE"
        ),
        UniqueConstraint("study_id", "kind", "trial", "number"),
        # NULL differs from NULL in a unique constraint: jobs of the whole study need their own.
        Index(
            "uq_attempt_study_job",
            "study_id",
            "kind",
            "number",
            unique=True,
            sqlite_where=text("trial IS NULL"),
            postgresql_where=text("trial IS NULL"),
        ),
        # The fence itself: at most one attempt of a kind works on a trial.
        Index(
            "uq_attempt_running",
            "study_id",
            "kind",
            "trial",
            unique=True,
            sqlite_where=text("state = 'running'"),
            postgresql_where=text("state = 'running'"),
        ),
        # What training took is summed up by these columns alone.
        Index("ix_attempt_device_seconds", "study_id", "kind", "state", "device_seconds"),
        Index(
            "ix_attempt_lease",
            "lease_until",
            sqlite_where=text("state = 'running'"),
            postgresql_where=text("state = 'running'"),
        ),
    )

    id: Mapped[str] = mapped_column(primary_key=True)
    study_id: Mapped[str] = mapped_column(ForeignKey("study.id", ondelete="CASCADE"))
    kind: Mapped[AttemptKind]
    trial: Mapped[int | None]
    number: Mapped[int]
    state: Mapped[AttemptState]
    reason: Mapped[str | None]
    job: Mapped[dict[str, Json]] = mapped_column(document())
    slot: Mapped[str]
    slot_share: Mapped[float]
    machine: Mapped[str | None]
    device: Mapped[str]
    token_digest: Mapped[str]
    lease_until: Mapped[datetime]
    started_at: Mapped[datetime]
    ended_at: Mapped[datetime | None]
    stood_still_seconds: Mapped[float]
    device_seconds: Mapped[float | None]


class MetricRow(Table):
    """One epoch of a trial's learning curve."""

    __tablename__ = "metric"
    __table_args__ = (
        ForeignKeyConstraint(
            ["study_id", "number"], ["trial.study_id", "trial.number"], ondelete="CASCADE"
        ),
    )

    study_id: Mapped[str] = mapped_column(primary_key=True)
    number: Mapped[int] = mapped_column(Integer, primary_key=True, autoincrement=False)
    epoch: Mapped[int] = mapped_column(Integer, primary_key=True, autoincrement=False)
    train_loss: Mapped[float | None]
    validation: Mapped[float]
    spectral_margin: Mapped[float | None]
    gradient_first: Mapped[float | None]
    gradient_last: Mapped[float | None]
    recovered_batches: Mapped[int] = mapped_column(server_default=text("0"))
    seconds: Mapped[float]
    attempt: Mapped[int]


class MeasurementRow(Table):
    """One throughput measurement with its circumstances."""

    __tablename__ = "measurement"
    __table_args__ = (
        ForeignKeyConstraint(
            ["study_id", "trial"], ["trial.study_id", "trial.number"], ondelete="CASCADE"
        ),
        Index(None, "study_id", "shape_key", "device"),
        # Their order, and what they took.
        Index("ix_measurement_seconds", "study_id", "created_at", "id", "seconds"),
    )

    id: Mapped[str] = mapped_column(primary_key=True)
    study_id: Mapped[str]
    trial: Mapped[int]
    shape_key: Mapped[str]
    device: Mapped[str]
    samples_per_second: Mapped[float]
    ratio: Mapped[float]
    record: Mapped[dict[str, Json]] = mapped_column(document())
    seconds: Mapped[float]
    created_at: Mapped[datetime]


class EventRow(Table):
    """One event; its number comes from the study's counter."""

    __tablename__ = "event"

    study_id: Mapped[str] = mapped_column(
        ForeignKey("study.id", ondelete="CASCADE"), primary_key=True
    )
    number: Mapped[int] = mapped_column(Integer, primary_key=True, autoincrement=False)
    kind: Mapped[str]
    payload: Mapped[dict[str, Json]] = mapped_column(document())
    created_at: Mapped[datetime]


class ExchangeRow(Table):
    """One ask or tell, in the order in which the sampler heard them."""

    __tablename__ = "exchange"

    study_id: Mapped[str] = mapped_column(
        ForeignKey("study.id", ondelete="CASCADE"), primary_key=True
    )
    position: Mapped[int] = mapped_column(Integer, primary_key=True, autoincrement=False)
    kind: Mapped[str]
    trial: Mapped[int]


class ErrandRow(Table):
    """Something that the API asks of the coordinator; it may outlive its study."""

    __tablename__ = "errand"
    __table_args__ = (Index(None, "kind", "study_id"),)

    id: Mapped[str] = mapped_column(primary_key=True)
    tenant: Mapped[str] = mapped_column(server_default=LOCAL)
    study_id: Mapped[str]
    kind: Mapped[ErrandKind]
    payload: Mapped[dict[str, Json]] = mapped_column(document())
    trial: Mapped[int | None]
    created_at: Mapped[datetime]


class CoordinatorRow(Table):
    """What a coordinator tells of itself, for as long as it works."""

    __tablename__ = "coordinator"

    owner: Mapped[str] = mapped_column(primary_key=True)
    slots: Mapped[list[Json]] = mapped_column(document())
    figures: Mapped[dict[str, Json]] = mapped_column(document())
    started_at: Mapped[datetime]
    seen_at: Mapped[datetime]


class MachineRow(Table):
    """A machine that joined with its slots; `changes` counts what there is to tell it."""

    __tablename__ = "machine"

    id: Mapped[str] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(unique=True)
    version: Mapped[str]
    session: Mapped[str]
    polls: Mapped[int]
    changes: Mapped[int]
    leaving: Mapped[bool]
    slots: Mapped[list[Json]] = mapped_column(document())
    joined_at: Mapped[datetime]
    seen_at: Mapped[datetime]


class BookingRow(Table):
    """An attempt on a place of a machine, from before it starts until its end was noticed."""

    __tablename__ = "booking"
    __table_args__ = (
        # The promise itself: nowhere do two attempts run on one place.
        Index(
            "uq_booking_place",
            "machine_id",
            "place",
            unique=True,
            sqlite_where=text("state <> 'exited'"),
            postgresql_where=text("state <> 'exited'"),
        ),
        Index(None, "owner", "state"),
    )

    attempt_id: Mapped[str] = mapped_column(primary_key=True)
    machine_id: Mapped[str]
    place: Mapped[str]
    owner: Mapped[str]
    state: Mapped[BookingState]
    offer: Mapped[dict[str, Json] | None] = mapped_column(document())
    grace_seconds: Mapped[float | None]
    returncode: Mapped[int | None]
    signal: Mapped[int | None]
    detail: Mapped[str | None]
    booked_at: Mapped[datetime]


class AttemptLogRow(Table):
    """What an attempt wrote, as far as it was sent here; `cut` bytes came before that."""

    __tablename__ = "attempt_log"

    attempt_id: Mapped[str] = mapped_column(
        ForeignKey("attempt.id", ondelete="CASCADE"), primary_key=True
    )
    study_id: Mapped[str] = mapped_column(ForeignKey("study.id", ondelete="CASCADE"))
    sha256: Mapped[str] = mapped_column(ForeignKey("artifact.sha256"))
    size: Mapped[int]
    cut: Mapped[int] = mapped_column(BigInteger)
    stored_at: Mapped[datetime]


class WebhookDeliveryRow(Table):
    """Something to tell a user's own server; it is due until it was delivered or given up."""

    __tablename__ = "webhook_delivery"
    __table_args__ = (Index(None, "study_id"), Index(None, "due_at"))

    id: Mapped[str] = mapped_column(primary_key=True)
    study_id: Mapped[str] = mapped_column(ForeignKey("study.id", ondelete="CASCADE"))
    url: Mapped[str]
    body: Mapped[dict[str, Json]] = mapped_column(document())
    tries: Mapped[int]
    due_at: Mapped[datetime | None]
    delivered_at: Mapped[datetime | None]
    reason: Mapped[str | None]
    created_at: Mapped[datetime]


class ArtifactRow(Table):
    """Bytes that are in the artifact store."""

    __tablename__ = "artifact"

    sha256: Mapped[str] = mapped_column(primary_key=True)
    size: Mapped[int] = mapped_column(BigInteger)
    created_at: Mapped[datetime]


class TrialArtifactRow(Table):
    """What part an artifact plays for a trial."""

    __tablename__ = "trial_artifact"
    __table_args__ = (
        ForeignKeyConstraint(
            ["study_id", "number"], ["trial.study_id", "trial.number"], ondelete="CASCADE"
        ),
    )

    study_id: Mapped[str] = mapped_column(primary_key=True)
    number: Mapped[int] = mapped_column(Integer, primary_key=True, autoincrement=False)
    role: Mapped[str] = mapped_column(primary_key=True)
    sha256: Mapped[str] = mapped_column(ForeignKey("artifact.sha256"))


class DatasetRow(Table):
    """A user's upload: the files as they came, what they were read into, and what was found."""

    __tablename__ = "dataset"
    __table_args__ = (
        # One table is named thrice, which the convention for names of keys does not tell apart.
        ForeignKeyConstraint(["sha256"], ["artifact.sha256"], name="fk_dataset_sha256"),
        ForeignKeyConstraint(["test_sha256"], ["artifact.sha256"], name="fk_dataset_test_sha256"),
        ForeignKeyConstraint(
            ["container_sha256"], ["artifact.sha256"], name="fk_dataset_container_sha256"
        ),
        UniqueConstraint("tenant", "fingerprint"),
        Index(None, "tenant", "created_at", "id"),
    )

    id: Mapped[str] = mapped_column(primary_key=True)
    tenant: Mapped[str] = mapped_column(server_default=LOCAL)
    name: Mapped[str]
    suffix: Mapped[str]
    size: Mapped[int] = mapped_column(BigInteger)
    sha256: Mapped[str]
    test_sha256: Mapped[str | None]
    fingerprint: Mapped[str]
    options: Mapped[dict[str, Json]] = mapped_column(document())
    facts: Mapped[dict[str, Json]] = mapped_column(document())
    preview: Mapped[list[Json]] = mapped_column(document())
    container_sha256: Mapped[str]
    created_at: Mapped[datetime]


class UploadedModelRow(Table):
    """A trained network that a user uploaded, as a checkpoint of our own form."""

    __tablename__ = "uploaded_model"
    __table_args__ = (
        UniqueConstraint("tenant", "fingerprint"),
        Index(None, "tenant", "created_at", "id"),
    )

    id: Mapped[str] = mapped_column(primary_key=True)
    tenant: Mapped[str] = mapped_column(server_default=LOCAL)
    name: Mapped[str]
    source: Mapped[str]
    sha256: Mapped[str] = mapped_column(ForeignKey("artifact.sha256"))
    size: Mapped[int] = mapped_column(BigInteger)
    file_sha256: Mapped[str]
    file_size: Mapped[int] = mapped_column(BigInteger)
    fingerprint: Mapped[str]
    options: Mapped[dict[str, Json]] = mapped_column(document())
    spec: Mapped[dict[str, Json]] = mapped_column(document())
    notes: Mapped[list[Json]] = mapped_column(document())
    parameters: Mapped[int] = mapped_column(BigInteger)
    created_at: Mapped[datetime]


class ApiKeyRow(Table):
    """An API key, of which only a digest is kept; a revoked one stays, and opens nothing."""

    __tablename__ = "api_key"
    __table_args__ = (Index(None, "tenant", "created_at", "id"),)

    id: Mapped[str] = mapped_column(primary_key=True)
    tenant: Mapped[str]
    name: Mapped[str]
    scopes: Mapped[list[Json]] = mapped_column(document())
    digest: Mapped[str] = mapped_column(unique=True)
    created_at: Mapped[datetime]
    last_used_at: Mapped[datetime | None]
    revoked_at: Mapped[datetime | None]


class AuditEventRow(Table):
    """Something that a user did; it stays when what it was done to goes."""

    __tablename__ = "audit_event"
    __table_args__ = (Index(None, "tenant", "at", "id"),)

    id: Mapped[str] = mapped_column(primary_key=True)
    at: Mapped[datetime]
    tenant: Mapped[str]
    key_id: Mapped[str | None]
    action: Mapped[str]
    subject: Mapped[str]
    detail: Mapped[dict[str, Json]] = mapped_column(document())
