"""Logs of attempts that were sent here: which stored bytes they are."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import bindparam, select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from storage.errors import NotFound
from storage.locking import insert, lock_study
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
_BEFORE = select(AttemptLogRow.attempt_id, AttemptLogRow.sha256).where(
    AttemptLogRow.attempt_id.in_(bindparam("attempts", expanding=True))
)


@dataclass(frozen=True)
class LogBytes:
    """Stored bytes that are the end of a log, and how many were written before them."""

    artifact: ArtifactRecord
    cut: int


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
        return self.put_all(study_id, {attempt_id: LogBytes(artifact, cut)}, at=at)

    def put_all(self, study_id: str, logs: Mapping[str, LogBytes], *, at: datetime) -> list[str]:
        """Put the logs of a study's attempts, each as `put` does; at least one."""
        lock_study(self._session, study_id)
        rows = ArtifactRows(self._session)
        rows.lock_names()
        before = [
            row.sha256
            for row in run(self._session, _BEFORE, {"attempts": list(logs)})
            if row.sha256 != logs[row.attempt_id].artifact.sha256
        ]
        rows.add_all([log.artifact for log in logs.values()])
        new = insert(self._session, AttemptLogRow)
        put = new.on_conflict_do_update(
            index_elements=["attempt_id"],
            set_={name: new.excluded[name] for name in ("sha256", "size", "cut", "stored_at")},
        )
        values = [
            {
                "attempt_id": attempt_id,
                "study_id": study_id,
                "sha256": log.artifact.sha256,
                "size": log.artifact.size,
                "cut": log.cut,
                "stored_at": at,
            }
            for attempt_id, log in logs.items()
        ]
        try:
            run(self._session, put, values)
        except IntegrityError as error:
            raise NotFound(
                f"there is no attempt {', '.join(map(repr, logs))} of study {study_id!r}"
            ) from error
        rows.drop_unused(before)
        return before

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
