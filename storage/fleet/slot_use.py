"""What runs on the coordinators' slots."""

from dataclasses import dataclass
from datetime import datetime
from typing import TypeAlias

from sqlalchemy import select
from sqlalchemy.orm import Session

from storage.records import AttemptKind
from storage.tables import ATTEMPT_RUNS, AttemptRow, StudyRow
from storage.tenants import ACROSS_TENANTS

Place: TypeAlias = "tuple[str | None, str]"
"""A coordinator's name, and that of one of its slots."""


@dataclass(frozen=True)
class AttemptOnSlot:
    """An attempt where it runs; `trial` is null for jobs of the whole study."""

    study_id: str
    trial: int | None
    kind: AttemptKind
    since: datetime


class SlotUse:
    """Who uses which slot, by the running attempts of one session."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def taken(self) -> set[Place]:
        """Every place where something runs; nothing tells what."""
        statement = (
            select(StudyRow.owner, AttemptRow.slot)
            .join(AttemptRow, AttemptRow.study_id == StudyRow.id)
            .where(ATTEMPT_RUNS)
            # See Note [Tenants]: a slot is no less busy for being another tenant's.
            .execution_options(**ACROSS_TENANTS)
        )
        return {(owner, slot) for owner, slot in self._session.execute(statement)}

    def attempts(self) -> dict[Place, AttemptOnSlot]:
        """What runs where, of the studies that the session may see."""
        # An attempt runs where its study's coordinator is: one that takes a study over declares the
        # attempts of the one before lost.
        statement = (
            select(
                StudyRow.owner,
                AttemptRow.slot,
                AttemptRow.study_id,
                AttemptRow.trial,
                AttemptRow.kind,
                AttemptRow.started_at,
            )
            .join(AttemptRow, AttemptRow.study_id == StudyRow.id)
            .where(ATTEMPT_RUNS)
        )
        return {
            (owner, slot): AttemptOnSlot(study_id, trial, kind, since)
            for owner, slot, study_id, trial, kind, since in self._session.execute(statement)
        }
