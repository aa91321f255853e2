"""Which stored bytes play which part for a trial; they are in the store before a row names them."""

from sqlalchemy import select
from sqlalchemy.orm import Session

from storage.records import ArtifactRecord
from storage.statements import added, insert, lock_study, storable_integer
from storage.tables import ArtifactRow, TrialArtifactRow


class ArtifactRows:
    """The artifact rows of one session."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def link(self, study_id: str, number: int, role: str, artifact: ArtifactRecord) -> None:
        """Let stored bytes play a part for a trial, in place of what played it before.

        Raises:
            NotFound: if there is no such trial.
        """
        lock_study(self._session, study_id)
        self._session.execute(
            insert(self._session, ArtifactRow).values(**vars(artifact)).on_conflict_do_nothing()
        )
        added(
            self._session,
            insert(self._session, TrialArtifactRow)
            .values(study_id=study_id, number=number, role=role, sha256=artifact.sha256)
            .on_conflict_do_update(
                index_elements=["study_id", "number", "role"], set_={"sha256": artifact.sha256}
            )
            .returning(TrialArtifactRow.study_id),
            missing=f"study {study_id!r} has no trial {number}",
        )

    def of_trial(self, study_id: str, number: int) -> dict[str, ArtifactRecord]:
        """The trial's artifacts by role."""
        if not storable_integer(number):
            return {}
        rows = self._session.execute(
            select(TrialArtifactRow.role, ArtifactRow)
            .join(ArtifactRow, ArtifactRow.sha256 == TrialArtifactRow.sha256)
            .where(TrialArtifactRow.study_id == study_id, TrialArtifactRow.number == number)
        )
        return {role: _record(row) for role, row in rows}


def _record(row: ArtifactRow) -> ArtifactRecord:
    return ArtifactRecord(sha256=row.sha256, size=row.size, created_at=row.created_at)
