"""Data sets: users' uploads, each stored once, kept while a study that has not ended needs it."""

from collections.abc import Mapping, Sequence

from sqlalchemy import delete, select
from sqlalchemy.orm import Session

from storage.errors import Conflict, NotFound
from storage.locking import insert
from storage.mapping import reader
from storage.paging import newest_first
from storage.records import ArtifactRecord, DatasetRecord, Json, Page, StudyState
from storage.repositories.artifact_rows import ArtifactRows
from storage.repositories.studies import Studies, listed
from storage.tables import DatasetRow
from storage.tenants import tenant_of

_record = reader(DatasetRecord)


class Datasets:
    """The data sets of one session."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def add(self, dataset: DatasetRecord, artifacts: Sequence[ArtifactRecord]) -> DatasetRecord:
        """Add a data set whose bytes are stored; see Note [Named bytes stay].

        Where there is one with its fingerprint, that one is returned: its id is not the given one,
        and nothing is added.
        """
        earlier = self.find(dataset.fingerprint)
        if earlier is not None:
            return earlier
        for artifact in artifacts:
            ArtifactRows(self._session).add(artifact)
        row = self._session.scalar(
            insert(self._session, DatasetRow)
            .values(**vars(dataset))
            .on_conflict_do_nothing(index_elements=["tenant", "fingerprint"])
            .returning(DatasetRow)
        )
        if row is not None:
            return _record(row)
        earlier = self.find(dataset.fingerprint)
        assert earlier is not None
        return earlier

    def find(self, fingerprint: str) -> DatasetRecord | None:
        """The tenant's data set of the same files, read in the same way; null if there is none."""
        row = self._session.scalar(
            select(DatasetRow).where(
                DatasetRow.tenant == tenant_of(self._session),
                DatasetRow.fingerprint == fingerprint,
            )
        )
        return None if row is None else _record(row)

    def get(self, dataset_id: str) -> DatasetRecord:
        """One data set.

        Raises:
            NotFound: if there is none.
        """
        row = self._session.scalar(select(DatasetRow).where(DatasetRow.id == dataset_id))
        if row is None:
            raise NotFound(f"there is no data set {dataset_id!r}")
        return _record(row)

    def hold_for(self, spec: Mapping[str, Json]) -> None:
        """Keep the data set that a study's document names, if it names one, until a commit.

        A study that is stored in the same transaction is one that `delete` then sees.

        Raises:
            NotFound: if it is gone.
        """
        dataset_id = _dataset_of(spec.get("task"))
        if dataset_id is not None:
            self._lock(dataset_id)

    def _lock(self, dataset_id: str) -> DatasetRecord:
        query = select(DatasetRow).where(DatasetRow.id == dataset_id).with_for_update()
        row = self._session.scalar(query)
        if row is None:
            raise NotFound(f"there is no data set {dataset_id!r}")
        return _record(row)

    def page(self, *, limit: int, cursor: str | None = None) -> Page[DatasetRecord]:
        """Data sets, newest first.

        Raises:
            BadCursor: if the cursor was not given out by this list.
        """
        return newest_first(
            self._session,
            select(DatasetRow),
            DatasetRow.created_at,
            DatasetRow.id,
            limit=limit,
            cursor=cursor,
            record=_record,
            key=lambda dataset: (dataset.created_at, dataset.id),
        )

    def delete(self, dataset_id: str) -> DatasetRecord:
        """Take away a data set, and the rows of artifacts that nothing else names.

        Raises:
            NotFound: if there is none.
            Conflict: if a study that has not ended uses it.
        """
        dataset = self._lock(dataset_id)
        users = self.used_by(dataset_id)
        if users:
            raise Conflict(
                f"data set {dataset_id!r} is used by {listed(users)}; it can be deleted once "
                "they have ended"
            )
        self._session.execute(delete(DatasetRow).where(DatasetRow.id == dataset_id))
        ArtifactRows(self._session).drop_unused(dataset.digests)
        return dataset

    def used_by(self, dataset_id: str) -> list[str]:
        """The ids of studies that have not ended and train on the data set, oldest first."""
        # Documents are not looked into by queries, and there are few studies that have not ended.
        open_states = (state for state in StudyState if not state.has_ended)
        return [
            study.id
            for study in Studies(self._session).in_states(*open_states)
            if _dataset_of(study.spec.get("task")) == dataset_id
        ]


def _dataset_of(task: Json) -> str | None:
    """The data set that a study's task names; null for other tasks."""
    match task:
        case {"kind": "dataset", "id": str(dataset_id)}:
            return dataset_id
        case _:
            return None
