"""Users' uploads: each stored once, kept while a study that has not ended needs it."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, TypeVar

from sqlalchemy import delete, select
from sqlalchemy.orm import Session

from storage.errors import Conflict, NotFound
from storage.locking import insert
from storage.mapping import reader
from storage.paging import newest_first
from storage.records import (
    ArtifactRecord,
    DatasetRecord,
    Json,
    Page,
    StudyState,
    UploadedModelRecord,
    UploadRecord,
)
from storage.repositories.artifact_rows import ArtifactRows
from storage.repositories.studies import Studies, listed
from storage.tables import DatasetRow, UploadedModelRow, UploadRow
from storage.tenants import tenant_of

_Record = TypeVar("_Record", bound=UploadRecord)

_dataset = reader(DatasetRecord)
_model = reader(UploadedModelRecord)


class Uploads(Generic[_Record]):
    """The uploads of one kind, of one session."""

    def __init__(
        self,
        session: Session,
        table: type[UploadRow],
        record: Callable[[Any], _Record],
        named_by: Callable[[Mapping[str, Json]], str | None],
        *,
        noun: str,
        used: str,
    ) -> None:
        """`named_by` tells which upload a study's document names; `used` is what it is then."""
        self._session = session
        self._table = table
        self._record = record
        self._named_by = named_by
        self._noun = noun
        self._used = used

    def add(self, record: _Record, artifacts: Sequence[ArtifactRecord]) -> _Record:
        """Add an upload whose bytes are stored; see Note [Named bytes stay].

        Where there is one with its fingerprint, that one is returned: its id is not the given one,
        and nothing is added.
        """
        earlier = self.find(record.fingerprint)
        if earlier is not None:
            return earlier
        for artifact in artifacts:
            ArtifactRows(self._session).add(artifact)
        row = self._session.scalar(
            insert(self._session, self._table)
            .values(**vars(record))
            .on_conflict_do_nothing(index_elements=["tenant", "fingerprint"])
            .returning(self._table)
        )
        if row is not None:
            return self._record(row)
        earlier = self.find(record.fingerprint)
        assert earlier is not None
        return earlier

    def find(self, fingerprint: str) -> _Record | None:
        """The tenant's upload of the same files, read in the same way; null if there is none."""
        row = self._session.scalar(
            select(self._table).where(
                self._table.tenant == tenant_of(self._session),
                self._table.fingerprint == fingerprint,
            )
        )
        return None if row is None else self._record(row)

    def get(self, upload_id: str) -> _Record:
        """One upload.

        Raises:
            NotFound: if there is none.
        """
        return self._one(upload_id)

    def of_study(self, spec: Mapping[str, Json]) -> _Record | None:
        """The upload that a study's document names; null for none, or one that is gone."""
        upload_id = self._named_by(spec)
        if upload_id is None:
            return None
        row = self._session.scalar(select(self._table).where(self._table.id == upload_id))
        return None if row is None else self._record(row)

    def hold_for(self, spec: Mapping[str, Json]) -> None:
        """Keep the upload that a study's document names, if it names one, until a commit.

        A study that is stored in the same transaction is one that `delete` then sees.

        Raises:
            NotFound: if it is gone.
        """
        upload_id = self._named_by(spec)
        if upload_id is not None:
            self._one(upload_id, lock=True)

    def page(self, *, limit: int, cursor: str | None = None) -> Page[_Record]:
        """Uploads, newest first.

        Raises:
            BadCursor: if the cursor was not given out by this list.
        """
        return newest_first(
            self._session, self._table, limit=limit, cursor=cursor, record=self._record
        )

    def delete(self, upload_id: str) -> _Record:
        """Take away an upload, and the rows of artifacts that nothing else names.

        Raises:
            NotFound: if there is none.
            Conflict: if a study that has not ended uses it.
        """
        upload = self._one(upload_id, lock=True)
        users = self.used_by(upload_id)
        if users:
            raise Conflict(
                f"{self._noun} {upload_id!r} is {self._used} by {listed(users)}; it can be deleted "
                "once they have ended"
            )
        self._session.execute(delete(self._table).where(self._table.id == upload_id))
        ArtifactRows(self._session).drop_unused(upload.digests)
        return upload

    def used_by(self, upload_id: str) -> list[str]:
        """The ids of studies that have not ended and name the upload, oldest first."""
        # Documents are not looked into by queries, and there are few studies that have not ended.
        open_states = (state for state in StudyState if not state.has_ended)
        return [
            study.id
            for study in Studies(self._session).in_states(*open_states)
            if self._named_by(study.spec) == upload_id
        ]

    def _one(self, upload_id: str, *, lock: bool = False) -> _Record:
        query = select(self._table).where(self._table.id == upload_id)
        row = self._session.scalar(query.with_for_update() if lock else query)
        if row is None:
            raise NotFound(f"there is no {self._noun} {upload_id!r}")
        return self._record(row)


class Datasets(Uploads[DatasetRecord]):
    """The data sets of one session."""

    def __init__(self, session: Session) -> None:
        super().__init__(session, DatasetRow, _dataset, _dataset_of, noun="data set", used="used")


class UploadedModels(Uploads[UploadedModelRecord]):
    """The uploaded models of one session."""

    def __init__(self, session: Session) -> None:
        super().__init__(
            session, UploadedModelRow, _model, _model_of, noun="model", used="compressed"
        )


def _dataset_of(spec: Mapping[str, Json]) -> str | None:
    """The data set that a study trains on; null for other tasks."""
    match spec.get("task"):
        case {"kind": "dataset", "id": str(dataset_id)}:
            return dataset_id
        case {"kind": "model_outputs", "data": str(dataset_id)}:
            return dataset_id
        case _:
            return None


def _model_of(spec: Mapping[str, Json]) -> str | None:
    """The model that a study compresses; null for a study that compresses none."""
    match spec:
        case {"compress": {"model": str(model_id)}}:
            return model_id
        case {"task": {"kind": "model_outputs", "model": str(model_id)}}:
            return model_id
        case _:
            return None
