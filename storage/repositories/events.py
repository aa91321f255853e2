"""Events of studies, numbered so that a reader who asks for what is behind a number misses none."""

from collections.abc import Iterable, Sequence
from datetime import datetime

from sqlalchemy import bindparam, insert, select, update
from sqlalchemy.orm import Session

from storage.errors import NotFound
from storage.locking import storable_integer
from storage.mapping import reader
from storage.records import EventRecord, Json
from storage.tables import EventRow, StudyRow
from storage.tenants import run

_record = reader(EventRecord)
_LAST_NUMBER = (
    update(StudyRow)
    .where(StudyRow.id == bindparam("study"))
    .values(last_event=StudyRow.last_event + bindparam("more"))
    .returning(StudyRow.last_event)
)
_INSERT = insert(EventRow)


class Events:
    """The events of one session."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def append(
        self, study_id: str, kind: str, payload: dict[str, Json], at: datetime
    ) -> EventRecord:
        """Add the study's next event.

        The number comes from the study's row, whose change keeps other writers out until this
        transaction ends: numbers have no gaps, and a lower one never appears after a higher one.

        Raises:
            NotFound: if there is no such study.
        """
        return self.append_all(study_id, kind, [payload], at)[0]

    def append_all(
        self, study_id: str, kind: str, payloads: Sequence[dict[str, Json]], at: datetime
    ) -> list[EventRecord]:
        """Add events of a kind in their order, as `append` adds one; at least one."""
        more = len(payloads)
        last = run(self._session, _LAST_NUMBER, {"study": study_id, "more": more}).scalar()
        if last is None:
            raise NotFound(f"there is no study {study_id!r}")
        events = [
            EventRecord(study_id=study_id, number=number, kind=kind, payload=payload, created_at=at)
            for number, payload in enumerate(payloads, last - more + 1)
        ]
        run(self._session, _INSERT, [vars(event) for event in events])
        return events

    def after(self, study_id: str, number: int, limit: int) -> list[EventRecord]:
        """At most `limit` of the study's events behind a number (0: from the first), in order."""
        if limit < 1:
            raise ValueError(f"limit {limit} is not 1 or more")
        if not storable_integer(max(number, 0)):
            return []
        rows = self._session.scalars(
            select(EventRow)
            .where(EventRow.study_id == study_id, EventRow.number > max(number, 0))
            .order_by(EventRow.number)
            .limit(limit)
        )
        return [_record(row) for row in rows]

    def of_kind(self, study_id: str, kind: str, *, after: int = 0) -> list[EventRecord]:
        """All of the study's events of one kind behind a number, in order."""
        rows = self._session.scalars(
            select(EventRow)
            .where(EventRow.study_id == study_id, EventRow.kind == kind, EventRow.number > after)
            .order_by(EventRow.number)
        )
        return [_record(row) for row in rows]

    def latest(self, study_ids: Iterable[str]) -> dict[str, int]:
        """The number of the last event of each of these studies that exists, in one query."""
        rows = self._session.execute(
            select(StudyRow.id, StudyRow.last_event).where(StudyRow.id.in_(list(study_ids)))
        )
        return {row.id: row.last_event for row in rows}
