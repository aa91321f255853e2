"""The order in which the sampler was asked and told, from which a lost sampler is rebuilt."""

from typing import TypeAlias

from sqlalchemy import bindparam, insert, select, update
from sqlalchemy.orm import Session

from storage.errors import NotFound
from storage.mapping import reader
from storage.records import ExchangeRecord
from storage.tables import ExchangeRow, StudyRow
from storage.tenants import run

ExchangeRecords: TypeAlias = list[ExchangeRecord]

KINDS = ("ask", "tell")

_record = reader(ExchangeRecord)
_NEXT_POSITION = (
    update(StudyRow)
    .where(StudyRow.id == bindparam("study"))
    .values(last_exchange=StudyRow.last_exchange + 1)
    .returning(StudyRow.last_exchange)
)
_INSERT = insert(ExchangeRow)


class Exchanges:
    """The exchanges of one session."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def append(self, study_id: str, kind: str, trial: int) -> ExchangeRecord:
        """Add the study's next exchange, an `ask` or a `tell`.

        Raises:
            NotFound: if there is no such study.
        """
        if kind not in KINDS:
            raise ValueError(f"{kind!r} is no kind of exchange; allowed are {', '.join(KINDS)}")
        position = run(self._session, _NEXT_POSITION, {"study": study_id}).scalar()
        if position is None:
            raise NotFound(f"there is no study {study_id!r}")
        exchange = ExchangeRecord(position=position, kind=kind, trial=trial)
        run(self._session, _INSERT, {"study_id": study_id, **vars(exchange)})
        return exchange

    def list(self, study_id: str) -> ExchangeRecords:
        """The study's exchanges in order."""
        rows = self._session.scalars(
            select(ExchangeRow)
            .where(ExchangeRow.study_id == study_id)
            .order_by(ExchangeRow.position)
        )
        return [_record(row) for row in rows]
