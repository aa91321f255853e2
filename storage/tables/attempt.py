"""Attempts at jobs, and their logs."""

from datetime import datetime

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    ForeignKey,
    ForeignKeyConstraint,
    Index,
    UniqueConstraint,
    and_,
    literal_column,
    text,
)
from sqlalchemy.orm import Mapped, mapped_column

from storage.columns import document
from storage.endings import AttemptCause
from storage.records import AttemptKind, AttemptState, Json
from storage.tables.base import Table

_OPEN = text("state IN ('assigned', 'running')")


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
        # The fence itself: at most one attempt of a kind works on a trial, or is about to.
        Index(
            "uq_attempt_open",
            "study_id",
            "kind",
            "trial",
            unique=True,
            sqlite_where=_OPEN,
            postgresql_where=_OPEN,
        ),
        # What training took is summed up by these columns alone.
        Index("ix_attempt_device_seconds", "study_id", "kind", "state", "device_seconds"),
        Index(
            "ix_attempt_lease",
            "lease_until",
            sqlite_where=_OPEN,
            postgresql_where=_OPEN,
        ),
    )

    id: Mapped[str] = mapped_column(primary_key=True)
    study_id: Mapped[str] = mapped_column(ForeignKey("study.id", ondelete="CASCADE"))
    kind: Mapped[AttemptKind]
    trial: Mapped[int | None]
    number: Mapped[int]
    state: Mapped[AttemptState]
    cause: Mapped[AttemptCause | None]
    detail: Mapped[str | None]
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


def _in_states(*states: AttemptState) -> ColumnElement[bool]:
    return AttemptRow.state.in_([literal_column(f"'{state.value}'") for state in states])


ATTEMPT_IS_OPEN = _in_states(AttemptState.ASSIGNED, AttemptState.RUNNING)
"""Of attempts that hold a lease. Written as in the indexes that have those alone: of parameters no
database knows what they will be, and SQLite reads every attempt there ever was."""
ATTEMPT_RUNS = and_(ATTEMPT_IS_OPEN, AttemptRow.state == AttemptState.RUNNING)
"""Of those that are at work."""


class AttemptLogRow(Table):
    """What an attempt wrote, as far as it was sent here; `cut` bytes came before that."""

    __tablename__ = "attempt_log"
    # As of trials' artifacts: before one goes, its names are looked for.
    __table_args__ = (Index(None, "sha256"),)

    attempt_id: Mapped[str] = mapped_column(
        ForeignKey("attempt.id", ondelete="CASCADE"), primary_key=True
    )
    study_id: Mapped[str] = mapped_column(ForeignKey("study.id", ondelete="CASCADE"))
    sha256: Mapped[str] = mapped_column(ForeignKey("artifact.sha256"))
    size: Mapped[int]
    cut: Mapped[int] = mapped_column(BigInteger)
    stored_at: Mapped[datetime]
