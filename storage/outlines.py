"""Trials in outline: what fronts and plots need of thousands, read without their documents."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import InstrumentedAttribute, Session

from storage.records import Json, TrialOrigin, TrialState
from storage.tables import TrialRow


@dataclass(frozen=True)
class TrialOutline:
    """Of a trial no more than its model, its values and how far it is, without its documents."""

    number: int
    state: TrialState
    origin: TrialOrigin
    quality: float | None
    parameters: int
    throughput: float | None
    measurement_id: str | None
    continues: int | None
    finished_at: datetime | None
    architecture: str
    parametrization: str
    dense_parameters: int
    throughput_ratio: float | None
    violation: float | None


_COLUMNS: tuple[InstrumentedAttribute[Any], ...] = (
    TrialRow.number,
    TrialRow.state,
    TrialRow.origin,
    TrialRow.quality,
    TrialRow.parameters,
    TrialRow.throughput,
    TrialRow.measurement_id,
    TrialRow.continues,
    TrialRow.finished_at,
    TrialRow.architecture,
    TrialRow.parametrization,
    TrialRow.dense_parameters,
    TrialRow.throughput_ratio,
    TrialRow.violation,
)
"""In the order of `TrialOutline`'s fields."""


def outlines(
    session: Session, study_id: str, states: Collection[TrialState], *, after: int | None = None
) -> Sequence[TrialOutline]:
    """A study's trials in one of these states, by number.

    With `after`, those alone whose outcome, throughput or files have changed since the study's data
    had that version, see `StudyRecord.data_version`.
    """
    query = (
        select(*_COLUMNS)
        .where(TrialRow.study_id == study_id, TrialRow.state.in_(states))
        .order_by(TrialRow.number)
    )
    if after is not None:
        query = query.where(TrialRow.data_version > after)
    return [TrialOutline(*row) for row in session.execute(query)]


def specs(session: Session, study_id: str, first: int, last: int) -> dict[int, dict[str, Json]]:
    """The documents of the study's trials from one number to another, by number."""
    rows = session.execute(
        select(TrialRow.number, TrialRow.spec).where(
            TrialRow.study_id == study_id, TrialRow.number.between(first, last)
        )
    )
    return {number: spec for number, spec in rows}  # noqa: C416 - rows are no pairs to types
