"""Logs of attempts that were sent here: which stored bytes they are."""

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import bindparam, select
from sqlalchemy.orm import Session

from storage.locking import added, insert, lock_study
from storage.mapping import reader
from storage.records import ArtifactRecord
from storage.repositories.artifact_rows import ArtifactRows
from storage.tables import AttemptLogRow
from storage.tenants import run


@dataclass(frozen=True, kw_only=True)
class AttemptLogRecord:
    """The end of what an attempt wrote, as far as it was sent."""

    attempt_id: str
    sha256: str
    size: int
    cut: int
    """Bytes that were written before these."""
    stored_at: datetime


_record = reader(AttemptLogRecord)
_BEFORE = select(AttemptLogRow.sha256).where(
    AttemptLogRow.attempt_id == bindparam("attempt"), AttemptLogRow.sha256 != bindparam("but")
)


class AttemptLogs:
    """The logs of one session."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def put(
        self, attempt_id: str, *, study_id: str, artifact: ArtifactRecord, cut: int, at: datetime
    ) -> list[str]:
        """Let stored bytes be an attempt's log, in place of those before.

        See Note [Named bytes stay]: afterwards, in the same transaction, the caller looks whether
        the bytes are still stored.

        Returns:
            The digests of what it was before, whose rows are gone unless others use them.

        Raises:
            NotFound: if there is no such attempt.
        """
        lock_study(self._session, study_id)
        rows = ArtifactRows(self._session)
        rows.lock_names()
        of = {"attempt": attempt_id, "but": artifact.sha256}
        before = run(self._session, _BEFORE, of).scalars().all()
        rows.add(artifact)
        values = {"sha256": artifact.sha256, "size": artifact.size, "cut": cut, "stored_at": at}
        added(
            self._session,
            insert(self._session, AttemptLogRow)
            .values(attempt_id=attempt_id, study_id=study_id, **values)
            .on_conflict_do_update(index_elements=["attempt_id"], set_=values)
            .returning(AttemptLogRow.attempt_id),
            missing=f"there is no attempt {attempt_id!r} of study {study_id!r}",
        )
        rows.drop_unused(before)
        return list(before)

    def get(self, attempt_id: str) -> AttemptLogRecord | None:
        """An attempt's log; null when none was sent."""
        row = self._session.scalar(
            select(AttemptLogRow).where(AttemptLogRow.attempt_id == attempt_id)
        )
        return None if row is None else _record(row)

    def digests(self, study_id: str) -> set[str]:
        """The digests of all logs of a study."""
        of_study = select(AttemptLogRow.sha256).where(AttemptLogRow.study_id == study_id)
        return set(self._session.scalars(of_study))
