"""Throughput measurements, each with its circumstances."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import bindparam, func, select
from sqlalchemy.orm import Session

from storage.batches import batched
from storage.errors import Conflict, NotFound
from storage.locking import add, lock_study
from storage.mapping import columns_of, reader
from storage.records import MeasurementRecord
from storage.tables import MeasurementRow
from storage.tenants import run

_record = reader(MeasurementRecord)
_COLUMNS = columns_of(MeasurementRecord, MeasurementRow)
_NAMED = select(*_COLUMNS).where(MeasurementRow.id.in_(bindparam("ids", expanding=True)))
_OF_STUDY = (
    select(*_COLUMNS)
    .where(MeasurementRow.study_id == bindparam("study"))
    .order_by(MeasurementRow.created_at, MeasurementRow.id)
)
_OF_SHAPE = _OF_STUDY.where(MeasurementRow.shape_key == bindparam("shape"))
_FIRST = _OF_SHAPE.where(MeasurementRow.device == bindparam("model")).limit(1)


@dataclass(frozen=True)
class Speed:
    """Of a measurement no more than what was measured of what."""

    id: str
    trial: int
    shape_key: str
    device: str
    samples_per_second: float
    ratio: float
    latency_p50: float | None
    latency_p99: float | None


class Measurements:
    """The measurements of one session."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def add(self, study_id: str, measurement: MeasurementRecord) -> None:
        """Keep a measurement of one of the study's trials.

        Raises:
            Conflict: if the id was used.
            NotFound: if there is no such trial.
        """
        if measurement.study_id != study_id:
            raise ValueError(
                f"a measurement of study {measurement.study_id!r}, not of {study_id!r}"
            )
        lock_study(self._session, study_id)
        missing = f"study {study_id!r} has no trial {measurement.trial}"
        is_new = add(self._session, MeasurementRow, vars(measurement), missing=missing)
        if not is_new:
            raise Conflict(f"there is a measurement with the id {measurement.id!r} already")

    def find(self, study_id: str, shape_key: str, device: str) -> MeasurementRecord | None:
        """The first measurement of this shape on this device: the one that the search goes by."""
        of = {"study": study_id, "shape": shape_key, "model": device}
        row = run(self._session, _FIRST, of).one_or_none()
        return None if row is None else _record(row)

    def get(self, measurement_id: str) -> MeasurementRecord:
        """One measurement.

        Raises:
            NotFound: if there is none.
        """
        found = self.named([measurement_id])
        if not found:
            raise NotFound(f"there is no measurement {measurement_id!r}")
        return found[measurement_id]

    def has(self, measurement_id: str) -> bool:
        """Whether there is a measurement with this id."""
        query = select(MeasurementRow.id).where(MeasurementRow.id == measurement_id)
        return self._session.scalar(query) is not None

    def of_study(self, study_id: str, shape_key: str | None = None) -> Sequence[MeasurementRecord]:
        """The study's measurements, or those of one shape, in the order they were made."""
        query = _OF_STUDY if shape_key is None else _OF_SHAPE
        rows = run(self._session, query, {"study": study_id, "shape": shape_key})
        return [_record(row) for row in rows]

    def named(self, ids: Collection[str]) -> dict[str, MeasurementRecord]:
        """The measurements with these ids, by id; an id that nothing has is left out."""
        found: dict[str, MeasurementRecord] = {}
        for some in batched(sorted(set(ids))):
            rows = run(self._session, _NAMED, {"ids": some})
            found |= {row.id: _record(row) for row in rows}
        return found

    def speeds(self, study_id: str) -> Sequence[Speed]:
        """The study's measurements without their circumstances, in the order they were made."""
        rows = self._session.execute(
            select(*columns_of(Speed, MeasurementRow))
            .where(MeasurementRow.study_id == study_id)
            .order_by(MeasurementRow.created_at, MeasurementRow.id)
        )
        return [Speed(*row) for row in rows]

    def first_device(self, study_id: str) -> str | None:
        """The device that the study was first measured on; null before that."""
        return self._session.scalar(
            select(MeasurementRow.device)
            .where(MeasurementRow.study_id == study_id)
            .order_by(MeasurementRow.created_at, MeasurementRow.id)
            .limit(1)
        )

    def measuring_seconds(self, study_id: str, *, until: datetime | None = None) -> float:
        """How long the study's measurements took, all or those made until then."""
        query = select(func.sum(MeasurementRow.seconds)).where(MeasurementRow.study_id == study_id)
        if until is not None:
            query = query.where(MeasurementRow.created_at <= until)
        return self._session.scalar(query) or 0.0
