"""How much work of all tenants could begin now if there were slots for it."""

from collections import Counter
from typing import cast

from sqlalchemy import exists, func, select
from sqlalchemy.orm import Session

from storage.records import AttemptKind, StudyState, TrialState
from storage.tables import ATTEMPT_RUNS, AttemptRow, StudyRow, TrialRow
from storage.tenants import ACROSS_TENANTS


class WaitingWork:
    """The work that waits, by the rows of one session."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def by_device(self) -> Counter[str]:
        """How many attempts could begin, by what their studies wish for: `any`, `cpu` or `cuda`.

        A study of which nothing runs and no trial waits wants one slot: for its data, or to see
        which devices there are.
        """
        running = self._running()
        waiting = self._waiting()
        wanted = Counter[str]()
        in_progress = select(StudyRow.id, StudyRow.spec).where(
            StudyRow.state.in_((StudyState.QUEUED, StudyState.RUNNING))
        )
        for study_id, spec in self._session.execute(in_progress, execution_options=ACROSS_TENANTS):
            least = 0 if study_id in running else 1
            resources = cast("dict[str, str]", spec.get("resources") or {})
            wanted[resources.get("device", "any")] += max(waiting[study_id], least)
        return wanted

    def _running(self) -> set[str]:
        """Studies of which something runs."""
        query = select(AttemptRow.study_id).where(ATTEMPT_RUNS)
        return set(self._session.scalars(query, execution_options=ACROSS_TENANTS))

    def _waiting(self) -> Counter[str]:
        """Study -> how many of its open trials no attempt trains."""
        trained = exists().where(
            AttemptRow.study_id == TrialRow.study_id,
            AttemptRow.trial == TrialRow.number,
            AttemptRow.kind == AttemptKind.TRAIN,
            ATTEMPT_RUNS,
        )
        is_open = TrialRow.state.in_((TrialState.QUEUED, TrialState.RUNNING))
        query = (
            select(TrialRow.study_id, func.count())
            .where(is_open, ~trained)
            .group_by(TrialRow.study_id)
        )
        found = self._session.execute(query, execution_options=ACROSS_TENANTS)
        return Counter({study_id: count for study_id, count in found})  # noqa: C416 - rows are no pairs to types
