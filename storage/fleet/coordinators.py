"""What each coordinator tells of itself: slots, figures, when it was last seen."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import delete, select
from sqlalchemy.orm import Session

from storage.fleet.machines import PlaceRecord, place_of
from storage.locking import insert
from storage.mapping import reader
from storage.records import Json
from storage.tables import CoordinatorRow


@dataclass(frozen=True)
class SlotRecord(PlaceRecord):
    """A place for one attempt at a time; the share of one for measuring is 0."""

    machine: str = ""
    """Where it is, when it is not the coordinator's own machine."""


@dataclass(frozen=True, kw_only=True)
class CoordinatorRecord:
    """A coordinator as it told of itself last."""

    owner: str
    """Its name, by which it claims studies."""
    slots: tuple[SlotRecord, ...]
    measuring_slots: tuple[SlotRecord, ...]
    figures: Mapping[str, Json]
    started_at: datetime
    seen_at: datetime


_read = reader(CoordinatorRecord, "slots", "measuring_slots")


class Coordinators:
    """The coordinators' rows of one session."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def report(self, record: CoordinatorRecord) -> None:
        """Write what a coordinator tells of itself, in place of what it told before."""
        values = {
            "slots": [
                *(_document(slot, measuring=False) for slot in record.slots),
                *(_document(slot, measuring=True) for slot in record.measuring_slots),
            ],
            "figures": dict(record.figures),
            "started_at": record.started_at,
            "seen_at": record.seen_at,
        }
        self._session.execute(
            insert(self._session, CoordinatorRow)
            .values(owner=record.owner, **values)
            .on_conflict_do_update(index_elements=["owner"], set_=values)
        )

    def remove(self, owner: str) -> None:
        """Take the row of a coordinator away that stops; harmless when there is none."""
        self._session.execute(delete(CoordinatorRow).where(CoordinatorRow.owner == owner))

    def find(self, owner: str) -> CoordinatorRecord | None:
        """What a coordinator told of itself last; null for one that never did, or stopped."""
        row = self._session.scalar(select(CoordinatorRow).where(CoordinatorRow.owner == owner))
        return None if row is None else _record(row)

    def alive(self, now: datetime, *, within_seconds: float) -> list[CoordinatorRecord]:
        """Those that were seen so lately, by name; one that was killed leaves its row behind.

        Nothing is claimed or lost by it, so that the machines' own clocks are good enough here, see
        Note [Whose clock].
        """
        since = now - timedelta(seconds=within_seconds)
        rows = self._session.scalars(
            select(CoordinatorRow)
            .where(CoordinatorRow.seen_at >= since)
            .order_by(CoordinatorRow.owner)
        )
        return [_record(row) for row in rows]


def _document(slot: SlotRecord, *, measuring: bool) -> dict[str, Json]:
    return {**vars(slot), "lane": measuring}


def _record(row: CoordinatorRow) -> CoordinatorRecord:
    entries = [slot for slot in row.slots if isinstance(slot, dict)]
    return _read(
        row,
        slots=tuple(place_of(SlotRecord, entry) for entry in entries if not entry["lane"]),
        measuring_slots=tuple(place_of(SlotRecord, entry) for entry in entries if entry["lane"]),
    )
