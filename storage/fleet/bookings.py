"""Bookings: which attempt has which place of a joined machine, and for which coordinator.

A booking is made with its attempt's row. It is `offered` until its machine says that it has it,
`running`, and `exited` until its coordinator has taken note. Every step is one conditional
statement, so that one that comes late changes nothing.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import ColumnElement, bindparam, delete, or_, select, update
from sqlalchemy.orm import Session

from storage.endings import AttemptCause
from storage.locking import add
from storage.mapping import columns_of, reader
from storage.records import BookingState, Json
from storage.tables import BookingRow, MachineRow
from storage.tenants import run

_OPEN = BookingRow.state != BookingState.EXITED
_STAYS = select(MachineRow.id).where(MachineRow.id == bindparam("machine"), ~MachineRow.leaving)


@dataclass(frozen=True, kw_only=True)
class TakenPlace:
    """Which attempt has a place on a machine, and for whom."""

    attempt_id: str
    machine_id: str
    place: str
    owner: str
    """The coordinator that booked it."""
    state: BookingState
    ahead: bool
    """Whether it waits there for the attempt before it to end."""


@dataclass(frozen=True, kw_only=True)
class BookingRecord(TakenPlace):
    """An attempt's place on a machine."""

    offer: Mapping[str, Json] | None
    """What the machine starts the attempt with; no secret is in it."""
    grace_seconds: float | None
    """How long the attempt may go on after it is told to end; null: it is not to end."""
    returncode: int | None
    signal: int | None
    cause: AttemptCause | None
    """Why the attempt ended."""
    detail: str | None
    booked_at: datetime


_record = reader(BookingRecord)
_COLUMNS = columns_of(BookingRecord, BookingRow)
_place = reader(TakenPlace)
_PLACES = select(*columns_of(TakenPlace, BookingRow))
_EXITS = select(*_COLUMNS).where(BookingRow.owner == bindparam("whose"), ~_OPEN)


class Bookings:
    """The bookings of one session."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def offer(
        self,
        attempt_id: str,
        *,
        machine_id: str,
        place: str,
        owner: str,
        offer: Mapping[str, Json],
        at: datetime,
        ahead: bool = False,
    ) -> bool:
        """Offer an attempt a place on a machine; False when another attempt has it.

        Or when the machine leaves, or is gone. `ahead`: it is to wait there for the one before.
        """
        if run(self._session, _STAYS, {"machine": machine_id}).scalar() is None:
            return False
        values = {
            "attempt_id": attempt_id,
            "machine_id": machine_id,
            "place": place,
            "owner": owner,
            "state": BookingState.OFFERED,
            "ahead": ahead,
            "offer": dict(offer),
            "booked_at": at,
        }
        return add(self._session, BookingRow, values, missing=f"there is no {machine_id!r}")

    def adopt(self, attempt_id: str, *, owner: str) -> str | None:
        """Give an attempt's place to another coordinator, and say which; null: it has none."""
        return self._session.scalar(
            update(BookingRow)
            .where(BookingRow.attempt_id == attempt_id, _OPEN)
            .values(owner=owner)
            .returning(BookingRow.place)
        )

    def cancel(self, attempt_id: str, grace_seconds: float) -> str | None:
        """Ask for an attempt's end; its machine's id where that is news, else null."""
        later = or_(BookingRow.grace_seconds.is_(None), BookingRow.grace_seconds > grace_seconds)
        return self._session.scalar(
            update(BookingRow)
            .where(BookingRow.attempt_id == attempt_id, _OPEN, later)
            .values(grace_seconds=grace_seconds)
            .returning(BookingRow.machine_id)
        )

    def run(self, attempt_ids: Collection[str]) -> None:
        """The machine says that it has these."""
        run(
            self._session,
            update(BookingRow)
            .where(BookingRow.attempt_id.in_(attempt_ids), BookingRow.state == BookingState.OFFERED)
            .values(state=BookingState.RUNNING),
        )

    def exit(
        self,
        attempt_id: str,
        *,
        machine_id: str,
        cause: AttemptCause,
        detail: str,
        returncode: int | None = None,
        signal: int | None = None,
    ) -> None:
        """The attempt ended so on that machine; only the first word about it counts."""
        run(
            self._session,
            update(BookingRow)
            .where(BookingRow.attempt_id == attempt_id, BookingRow.machine_id == machine_id, _OPEN)
            .values(
                state=BookingState.EXITED,
                returncode=returncode,
                signal=signal,
                cause=cause,
                detail=detail,
            ),
        )

    def exits(self, owner: str) -> list[BookingRecord]:
        """The ends that a coordinator has not forgotten."""
        return [_record(row) for row in run(self._session, _EXITS, {"whose": owner})]

    def drop(self, attempt_ids: Collection[str]) -> None:
        """Forget ends that were heard of."""
        run(
            self._session,
            delete(BookingRow).where(BookingRow.attempt_id.in_(attempt_ids), ~_OPEN),
        )

    def open(self, machine_id: str) -> list[BookingRecord]:
        """The bookings of a machine whose place is taken."""
        return self._where(_OPEN, BookingRow.machine_id == machine_id)

    def places(self) -> list[TakenPlace]:
        """Every booking, ends that were not heard of included, without what it offers."""
        return [_place(row) for row in run(self._session, _PLACES)]

    def all(self) -> list[BookingRecord]:
        """Every booking, ends that were not heard of included."""
        return self._where()

    def _where(self, *conditions: ColumnElement[bool]) -> list[BookingRecord]:
        rows = run(
            self._session, select(*_COLUMNS).where(*conditions).order_by(BookingRow.attempt_id)
        )
        return [_record(row) for row in rows]

    def forget(self, *, owner: str) -> None:
        """The ends that a coordinator of this name left behind which died."""
        self._session.execute(delete(BookingRow).where(BookingRow.owner == owner, ~_OPEN))

    def forget_machines(self, machine_ids: Collection[str]) -> None:
        """Take away all bookings on machines that are gone for good."""
        self._session.execute(delete(BookingRow).where(BookingRow.machine_id.in_(machine_ids)))

    def forget_ends(self, before: datetime) -> None:
        """Take away ends of attempts booked before then, whose coordinator never came back."""
        self._session.execute(delete(BookingRow).where(BookingRow.booked_at < before, ~_OPEN))
