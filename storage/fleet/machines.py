"""Machines that joined the site with their slots: who they are, and when they were heard of."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from functools import cache
from typing import Any, TypeVar

from sqlalchemy import ColumnElement, bindparam, case, delete, exists, select, update
from sqlalchemy.orm import Session

from storage.locking import insert, lock_key
from storage.mapping import all_columns, reader
from storage.tables import MachineRow
from storage.tenants import run


@dataclass(frozen=True)
class PlaceRecord:
    """A place on a machine where one attempt at a time runs."""

    name: str
    device: str
    model: str
    share: float
    memory: int | None = None
    """Bytes of the machine's memory that an attempt may take; null: unknown."""
    device_memory: int | None = None
    """Bytes of its GPU's memory, likewise."""
    compiles: bool = True
    """Whether its machine has a C compiler, as far as that is known."""


_Place = TypeVar("_Place", bound=PlaceRecord)


@dataclass(frozen=True, kw_only=True)
class MachineRecord:
    """A machine as it joined, and as it was heard of last."""

    id: str
    name: str
    """Unique; what people call it, and what tells its slots from others'."""
    version: str
    """Of the program that runs there."""
    session: str
    """Names the process that joined as this machine last; no other is listened to."""
    polls: int
    """The number of the newest poll of that process."""
    changes: int
    """Grows with whatever there is to tell it."""
    leaving: bool
    """It takes nothing more, and is gone when what runs there has ended."""
    slots: tuple[PlaceRecord, ...]
    joined_at: datetime
    seen_at: datetime


_read = reader(MachineRecord, "slots")


# Any number will do; every transaction in which a machine joins waits for it.
_JOINING_LOCK = 0x6A6F696E

_COLUMNS = all_columns(MachineRow)
_BY_ID = select(*_COLUMNS).where(MachineRow.id == bindparam("machine"))


class Machines:
    """The machines' rows of one session."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def join(
        self,
        machine_id: str,
        *,
        name: str,
        version: str,
        session: str,
        slots: Sequence[PlaceRecord],
        at: datetime,
    ) -> MachineRecord:
        """Add a machine, or take the words of one that comes back in place of those before.

        To a name that another machine has the beginning of the id is added.
        """
        # Another that joins just now may be about to take the name.
        lock_key(self._session, _JOINING_LOCK)
        if self._is_anothers(name, machine_id):
            name = f"{name}-{machine_id[:6]}"
        values = {
            "name": name,
            "version": version,
            "session": session,
            "leaving": False,
            "slots": [dict(vars(slot)) for slot in slots],
            "seen_at": at,
        }
        row = self._session.scalars(
            insert(self._session, MachineRow)
            .values(id=machine_id, joined_at=at, changes=0, polls=0, **values)
            .on_conflict_do_update(
                index_elements=["id"],
                set_={
                    **values,
                    "polls": case((MachineRow.session == session, MachineRow.polls), else_=0),
                    "changes": MachineRow.changes + 1,
                },
            )
            .returning(MachineRow)
        ).one()
        return _record(row)

    def poll(
        self, machine_id: str, *, session: str, number: int, at: datetime
    ) -> MachineRecord | None:
        """Note a poll; null when the process is not the one that joined last, or polled since.

        Until the transaction ends, no other poll of the machine is answered.
        """
        newest = MachineRow.polls < number
        return self._change(machine_id, session, newest, polls=number, seen_at=at)

    def again(
        self, machine_id: str, *, session: str, number: int, at: datetime
    ) -> MachineRecord | None:
        """Go on with a poll that waited; null when a newer one came meanwhile."""
        return self._change(machine_id, session, MachineRow.polls == number, seen_at=at)

    def find(self, machine_id: str) -> MachineRecord | None:
        """One machine; null when there is no such one."""
        row = run(self._session, _BY_ID, {"machine": machine_id}).one_or_none()
        return None if row is None else _record(row)

    def leave(self, machine_id: str, *, session: str) -> MachineRecord | None:
        """Let a machine take nothing more; null when the process is not the one that joined."""
        return self._change(machine_id, session, leaving=True)

    def remove(self, machine_id: str) -> None:
        """Take a machine's row away; harmless when there is none."""
        self._session.execute(delete(MachineRow).where(MachineRow.id == machine_id))

    def remove_unseen(self, before: datetime) -> list[str]:
        """Take the rows of those away that were not heard of since; returns their ids."""
        gone = delete(MachineRow).where(MachineRow.seen_at < before).returning(MachineRow.id)
        return list(self._session.scalars(gone))

    def list(self) -> list[MachineRecord]:
        """All machines, by name."""
        rows = self._session.scalars(select(MachineRow).order_by(MachineRow.name))
        return [_record(row) for row in rows]

    def changes(self, machine_ids: Collection[str]) -> dict[str, int]:
        """How far the counts of these machines' changes are."""
        rows = run(
            self._session,
            select(MachineRow.id, MachineRow.changes).where(MachineRow.id.in_(machine_ids)),
        )
        return {row.id: row.changes for row in rows}

    def note_changes(self, machine_ids: Collection[str]) -> None:
        """Have polls of these machines that wait look again."""
        run(
            self._session,
            update(MachineRow)
            .where(MachineRow.id.in_(machine_ids))
            .values(changes=MachineRow.changes + 1),
        )

    def _change(
        self, machine_id: str, session: str, *where: ColumnElement[bool], **values: Any
    ) -> MachineRecord | None:
        """Change the row of a machine that joined last by this process; null where it did not."""
        changed: Any = (
            update(MachineRow)
            .where(MachineRow.id == machine_id, MachineRow.session == session, *where)
            .values(**values)
        )
        row = run(self._session, changed.returning(*_COLUMNS)).one_or_none()
        return None if row is None else _record(row)

    def _is_anothers(self, name: str, machine_id: str) -> bool:
        others = exists().where(MachineRow.name == name, MachineRow.id != machine_id)
        return bool(self._session.scalar(select(others)))


def _record(row: Any) -> MachineRecord:
    return _read(row, slots=tuple(place_of(PlaceRecord, slot) for slot in row.slots))


def place_of(kind: type[_Place], stored: Any) -> _Place:
    """A place as it was stored as JSON; what else was stored with it is left out."""
    names = _names_of(kind)
    return kind(**{name: value for name, value in stored.items() if name in names})


@cache
def _names_of(kind: type[PlaceRecord]) -> frozenset[str]:
    return frozenset(field.name for field in fields(kind))
