"""The first tables: studies, trials, and what belongs to them.

A migration says what the tables were when it was written, in plain types: it never changes.
"""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None

_DOCUMENT = sa.JSON()
_INSTANT = sa.DateTime(timezone=True)
_NUMBER: sa.Double[float] = sa.Double()
_WORD = sa.String(16)
_OF_TRIAL = ["trial.study_id", "trial.number"]


def upgrade() -> None:
    _create_studies()
    _create_trials()
    _create_attempts()
    _create_records_of_trials()
    _create_records_of_studies()
    _create_artifacts()


def downgrade() -> None:
    for table in (
        "trial_artifact",
        "artifact",
        "exchange",
        "event",
        "measurement",
        "metric",
        "attempt",
        "trial",
        "study",
    ):
        op.drop_table(table)


def _create_studies() -> None:
    op.create_table(
        "study",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("state", _WORD, nullable=False),
        sa.Column("state_reason", sa.Text()),
        sa.Column("spec", _DOCUMENT, nullable=False),
        sa.Column("created_at", _INSTANT, nullable=False),
        sa.Column("started_at", _INSTANT),
        sa.Column("finished_at", _INSTANT),
        sa.Column("running_seconds", _NUMBER, nullable=False),
        sa.Column("ending", sa.Text()),
        sa.Column("prepared", _DOCUMENT),
        sa.Column("reference_point", _DOCUMENT),
        sa.Column("last_event", sa.Integer(), nullable=False),
        sa.Column("last_exchange", sa.Integer(), nullable=False),
        sa.Column("owner", sa.Text()),
        sa.Column("owned_until", _INSTANT),
        sa.Column("idempotency_key", sa.Text()),
        sa.Column("body_digest", sa.Text()),
        sa.PrimaryKeyConstraint("id", name="pk_study"),
        sa.UniqueConstraint("idempotency_key", name="uq_study_idempotency_key"),
        sa.Index("ix_study_created_at_id", "created_at", "id"),
        sa.Index("ix_study_state", "state"),
    )


def _create_trials() -> None:
    untold = sa.text("told_at IS NULL AND finished_at IS NOT NULL")
    op.create_table(
        "trial",
        _study_id(),
        sa.Column("number", sa.Integer(), nullable=False, autoincrement=False),
        sa.Column("state", _WORD, nullable=False),
        sa.Column("reason", sa.Text()),
        sa.Column("architecture", sa.Text(), nullable=False),
        sa.Column("parametrization", sa.Text(), nullable=False),
        sa.Column("hyperparameters", _DOCUMENT, nullable=False),
        sa.Column("drawn", _DOCUMENT, nullable=False),
        sa.Column("spec", _DOCUMENT, nullable=False),
        sa.Column("parameters", sa.BigInteger(), nullable=False),
        sa.Column("dense_parameters", sa.BigInteger(), nullable=False),
        sa.Column("shape_key", sa.Text(), nullable=False),
        sa.Column("violation", _NUMBER),
        sa.Column("quality", _NUMBER),
        sa.Column("test_quality", _NUMBER),
        sa.Column("best_epoch", sa.Integer()),
        sa.Column("epochs_trained", sa.Integer(), nullable=False),
        sa.Column("throughput", _NUMBER),
        sa.Column("throughput_ratio", _NUMBER),
        sa.Column("measurement_id", sa.Text()),
        sa.Column("dispatched", sa.Boolean(), nullable=False),
        sa.Column("created_at", _INSTANT, nullable=False),
        sa.Column("started_at", _INSTANT),
        sa.Column("finished_at", _INSTANT),
        sa.Column("told_at", _INSTANT),
        sa.PrimaryKeyConstraint("study_id", "number", name="pk_trial"),
        _of_study("trial"),
        sa.Index("ix_trial_study_id_state", "study_id", "state"),
        sa.Index(
            "ix_trial_untold",
            "study_id",
            "finished_at",
            sqlite_where=untold,
            postgresql_where=untold,
        ),
    )


def _create_attempts() -> None:
    op.create_table(
        "attempt",
        sa.Column("id", sa.Text(), nullable=False),
        _study_id(),
        sa.Column("kind", _WORD, nullable=False),
        sa.Column("trial", sa.Integer()),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("state", _WORD, nullable=False),
        sa.Column("reason", sa.Text()),
        sa.Column("job", _DOCUMENT, nullable=False),
        sa.Column("slot", sa.Text(), nullable=False),
        sa.Column("slot_share", _NUMBER, nullable=False),
        sa.Column("device", sa.Text(), nullable=False),
        sa.Column("token_digest", sa.Text(), nullable=False),
        sa.Column("lease_until", _INSTANT, nullable=False),
        sa.Column("started_at", _INSTANT, nullable=False),
        sa.Column("ended_at", _INSTANT),
        sa.Column("stood_still_seconds", _NUMBER, nullable=False),
        sa.Column("device_seconds", _NUMBER),
        sa.PrimaryKeyConstraint("id", name="pk_attempt"),
        sa.UniqueConstraint(
            "study_id", "kind", "trial", "number", name="uq_attempt_study_id_kind_trial_number"
        ),
        _of_study("attempt"),
        _of_trial("attempt", "trial"),
    )
    running, of_study = sa.text("state = 'running'"), sa.text("trial IS NULL")
    _create_partial_index("uq_attempt_running", ["study_id", "kind", "trial"], running, unique=True)
    _create_partial_index(
        "uq_attempt_study_job", ["study_id", "kind", "number"], of_study, unique=True
    )
    _create_partial_index("ix_attempt_lease", ["lease_until"], running, unique=False)


def _create_partial_index(
    name: str, columns: list[str], where: sa.TextClause, *, unique: bool
) -> None:
    op.create_index(
        name, "attempt", columns, unique=unique, sqlite_where=where, postgresql_where=where
    )


def _create_records_of_trials() -> None:
    op.create_table(
        "metric",
        _study_id(),
        sa.Column("number", sa.Integer(), nullable=False, autoincrement=False),
        sa.Column("epoch", sa.Integer(), nullable=False, autoincrement=False),
        sa.Column("train_loss", _NUMBER, nullable=False),
        sa.Column("validation", _NUMBER, nullable=False),
        sa.Column("spectral_margin", _NUMBER),
        sa.Column("seconds", _NUMBER, nullable=False),
        sa.Column("attempt", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("study_id", "number", "epoch", name="pk_metric"),
        _of_trial("metric", "number"),
    )
    op.create_table(
        "measurement",
        sa.Column("id", sa.Text(), nullable=False),
        _study_id(),
        sa.Column("trial", sa.Integer(), nullable=False),
        sa.Column("shape_key", sa.Text(), nullable=False),
        sa.Column("device", sa.Text(), nullable=False),
        sa.Column("samples_per_second", _NUMBER, nullable=False),
        sa.Column("ratio", _NUMBER, nullable=False),
        sa.Column("record", _DOCUMENT, nullable=False),
        sa.Column("seconds", _NUMBER, nullable=False),
        sa.Column("created_at", _INSTANT, nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_measurement"),
        _of_trial("measurement", "trial"),
        sa.Index("ix_measurement_study_id_shape_key_device", "study_id", "shape_key", "device"),
    )


def _create_records_of_studies() -> None:
    op.create_table(
        "event",
        _study_id(),
        sa.Column("number", sa.Integer(), nullable=False, autoincrement=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("payload", _DOCUMENT, nullable=False),
        sa.Column("created_at", _INSTANT, nullable=False),
        sa.PrimaryKeyConstraint("study_id", "number", name="pk_event"),
        _of_study("event"),
    )
    op.create_table(
        "exchange",
        _study_id(),
        sa.Column("position", sa.Integer(), nullable=False, autoincrement=False),
        sa.Column("kind", sa.Text(), nullable=False),
        sa.Column("trial", sa.Integer(), nullable=False),
        sa.PrimaryKeyConstraint("study_id", "position", name="pk_exchange"),
        _of_study("exchange"),
    )


def _create_artifacts() -> None:
    op.create_table(
        "artifact",
        sa.Column("sha256", sa.Text(), nullable=False),
        sa.Column("size", sa.BigInteger(), nullable=False),
        sa.Column("created_at", _INSTANT, nullable=False),
        sa.PrimaryKeyConstraint("sha256", name="pk_artifact"),
    )
    op.create_table(
        "trial_artifact",
        _study_id(),
        sa.Column("number", sa.Integer(), nullable=False, autoincrement=False),
        sa.Column("role", sa.Text(), nullable=False),
        sa.Column("sha256", sa.Text(), nullable=False),
        sa.PrimaryKeyConstraint("study_id", "number", "role", name="pk_trial_artifact"),
        _of_trial("trial_artifact", "number"),
        sa.ForeignKeyConstraint(["sha256"], ["artifact.sha256"], name="fk_trial_artifact_artifact"),
    )


def _study_id() -> sa.Column[str]:
    return sa.Column("study_id", sa.Text(), nullable=False)


def _of_study(table: str) -> sa.ForeignKeyConstraint:
    return sa.ForeignKeyConstraint(
        ["study_id"], ["study.id"], name=f"fk_{table}_study", ondelete="CASCADE"
    )


def _of_trial(table: str, number: str) -> sa.ForeignKeyConstraint:
    return sa.ForeignKeyConstraint(
        ["study_id", number], _OF_TRIAL, name=f"fk_{table}_trial", ondelete="CASCADE"
    )
