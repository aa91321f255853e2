"""Coordinators, machines, and what runs on them."""

from datetime import datetime

from sqlalchemy import Index, false, text
from sqlalchemy.orm import Mapped, mapped_column

from storage.columns import document
from storage.endings import AttemptCause
from storage.records import BookingState, Json
from storage.tables.base import Table


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


_TAKES_ITS_PLACE = text("state <> 'exited' AND NOT ahead")


class BookingRow(Table):
    """An attempt on a place of a machine, from before it starts until its end was noticed."""

    __tablename__ = "booking"
    __table_args__ = (
        # The promise itself: nowhere do two attempts run on one place. What is booked ahead waits
        # there for the one before it.
        Index(
            "uq_booking_place",
            "machine_id",
            "place",
            unique=True,
            sqlite_where=_TAKES_ITS_PLACE,
            postgresql_where=_TAKES_ITS_PLACE,
        ),
        Index(None, "owner", "state"),
    )

    attempt_id: Mapped[str] = mapped_column(primary_key=True)
    machine_id: Mapped[str]
    place: Mapped[str]
    owner: Mapped[str]
    state: Mapped[BookingState]
    ahead: Mapped[bool] = mapped_column(server_default=false())
    offer: Mapped[dict[str, Json] | None] = mapped_column(document())
    grace_seconds: Mapped[float | None]
    returncode: Mapped[int | None]
    signal: Mapped[int | None]
    cause: Mapped[AttemptCause | None]
    detail: Mapped[str | None]
    booked_at: Mapped[datetime]
