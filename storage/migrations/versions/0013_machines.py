"""Machines that join with their slots, what is booked on them, and the logs of attempts there."""

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"

_NUMBER: sa.Double[float] = sa.Double()


def upgrade() -> None:
    op.create_table(
        "machine",
        sa.Column("id", sa.Text(), nullable=False),
        sa.Column("name", sa.Text(), nullable=False),
        sa.Column("version", sa.Text(), nullable=False),
        sa.Column("session", sa.Text(), nullable=False),
        sa.Column("polls", sa.Integer(), nullable=False),
        sa.Column("changes", sa.Integer(), nullable=False),
        sa.Column("leaving", sa.Boolean(), nullable=False),
        sa.Column("slots", sa.JSON(), nullable=False),
        sa.Column("joined_at", sa.DateTime(timezone=True), nullable=False),
        sa.Column("seen_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_machine"),
        sa.UniqueConstraint("name", name="uq_machine_name"),
    )
    op.create_table(
        "booking",
        sa.Column("attempt_id", sa.Text(), nullable=False),
        sa.Column("machine_id", sa.Text(), nullable=False),
        sa.Column("place", sa.Text(), nullable=False),
        sa.Column("owner", sa.Text(), nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("offer", sa.JSON()),
        sa.Column("grace_seconds", _NUMBER),
        sa.Column("returncode", sa.Integer()),
        sa.Column("signal", sa.Integer()),
        sa.Column("detail", sa.Text()),
        sa.Column("booked_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("attempt_id", name="pk_booking"),
        sa.Index("ix_booking_owner_state", "owner", "state"),
        sa.Index(
            "uq_booking_place",
            "machine_id",
            "place",
            unique=True,
            sqlite_where=sa.text("state <> 'exited'"),
            postgresql_where=sa.text("state <> 'exited'"),
        ),
    )
    op.create_table(
        "attempt_log",
        sa.Column("attempt_id", sa.Text(), nullable=False),
        sa.Column("study_id", sa.Text(), nullable=False),
        sa.Column("sha256", sa.Text(), nullable=False),
        sa.Column("size", sa.Integer(), nullable=False),
        sa.Column("cut", sa.BigInteger(), nullable=False),
        sa.Column("stored_at", sa.DateTime(timezone=True), nullable=False),
        sa.PrimaryKeyConstraint("attempt_id", name="pk_attempt_log"),
        sa.ForeignKeyConstraint(
            ["attempt_id"], ["attempt.id"], name="fk_attempt_log_attempt", ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(
            ["study_id"], ["study.id"], name="fk_attempt_log_study", ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(["sha256"], ["artifact.sha256"], name="fk_attempt_log_artifact"),
    )
    op.add_column("attempt", sa.Column("machine", sa.Text()))


def downgrade() -> None:
    op.drop_column("attempt", "machine")
    op.drop_table("attempt_log")
    op.drop_table("booking")
    op.drop_table("machine")
