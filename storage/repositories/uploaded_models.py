"""Uploaded models: each stored once, kept while a study that has not ended compresses it."""

from collections.abc import Mapping

from sqlalchemy import delete, select
from sqlalchemy.orm import Session

from storage.errors import Conflict, NotFound
from storage.locking import insert
from storage.mapping import reader
from storage.paging import newest_first
from storage.records import ArtifactRecord, Json, Page, StudyState, UploadedModelRecord
from storage.repositories.artifact_rows import ArtifactRows
from storage.repositories.studies import Studies, listed
from storage.tables import UploadedModelRow
from storage.tenants import tenant_of

_record = reader(UploadedModelRecord)


class UploadedModels:
    """The uploaded models of one session."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def add(self, model: UploadedModelRecord) -> UploadedModelRecord:
        """Add a model whose bytes are stored; see Note [Named bytes stay].

        Where there is one with its fingerprint, that one is returned: its id is not the given one,
        and nothing is added.
        """
        earlier = self.find(model.fingerprint)
        if earlier is not None:
            return earlier
        ArtifactRows(self._session).add(
            ArtifactRecord(sha256=model.sha256, size=model.size, created_at=model.created_at)
        )
        row = self._session.scalar(
            insert(self._session, UploadedModelRow)
            .values(**vars(model))
            .on_conflict_do_nothing(index_elements=["tenant", "fingerprint"])
            .returning(UploadedModelRow)
        )
        if row is not None:
            return _record(row)
        earlier = self.find(model.fingerprint)
        assert earlier is not None
        return earlier

    def find(self, fingerprint: str) -> UploadedModelRecord | None:
        """The tenant's model of the same file, read in the same way; null if there is none."""
        row = self._session.scalar(
            select(UploadedModelRow).where(
                UploadedModelRow.tenant == tenant_of(self._session),
                UploadedModelRow.fingerprint == fingerprint,
            )
        )
        return None if row is None else _record(row)

    def get(self, model_id: str) -> UploadedModelRecord:
        """One model.

        Raises:
            NotFound: if there is none.
        """
        row = self._row(model_id)
        if row is None:
            raise _not_found(model_id)
        return _record(row)

    def of_study(self, spec: Mapping[str, Json]) -> UploadedModelRecord | None:
        """The model that a study's document compresses; null for none, or one that is gone."""
        model_id = _model_of(spec)
        if model_id is None:
            return None
        row = self._row(model_id)
        return None if row is None else _record(row)

    def hold_for(self, spec: Mapping[str, Json]) -> None:
        """Keep the model that a study's document compresses, if it names one, until a commit.

        A study that is stored in the same transaction is one that `delete` then sees.

        Raises:
            NotFound: if it is gone.
        """
        model_id = _model_of(spec)
        if model_id is not None:
            self._lock(model_id)

    def page(self, *, limit: int, cursor: str | None = None) -> Page[UploadedModelRecord]:
        """Models, newest first.

        Raises:
            BadCursor: if the cursor was not given out by this list.
        """
        return newest_first(
            self._session,
            select(UploadedModelRow),
            UploadedModelRow.created_at,
            UploadedModelRow.id,
            limit=limit,
            cursor=cursor,
            record=_record,
            key=lambda model: (model.created_at, model.id),
        )

    def delete(self, model_id: str) -> UploadedModelRecord:
        """Take away a model, and the row of its artifact unless something else names it.

        Raises:
            NotFound: if there is none.
            Conflict: if a study that has not ended compresses it.
        """
        model = self._lock(model_id)
        users = self.used_by(model_id)
        if users:
            raise Conflict(
                f"model {model_id!r} is compressed by {listed(users)}; it can be deleted once "
                "they have ended"
            )
        self._session.execute(delete(UploadedModelRow).where(UploadedModelRow.id == model_id))
        ArtifactRows(self._session).drop_unused([model.sha256])
        return model

    def used_by(self, model_id: str) -> list[str]:
        """The ids of studies that have not ended and compress the model, oldest first."""
        open_states = (state for state in StudyState if not state.has_ended)
        return [
            study.id
            for study in Studies(self._session).in_states(*open_states)
            if _model_of(study.spec) == model_id
        ]

    def _row(self, model_id: str) -> UploadedModelRow | None:
        return self._session.scalar(select(UploadedModelRow).where(UploadedModelRow.id == model_id))

    def _lock(self, model_id: str) -> UploadedModelRecord:
        query = select(UploadedModelRow).where(UploadedModelRow.id == model_id).with_for_update()
        row = self._session.scalar(query)
        if row is None:
            raise _not_found(model_id)
        return _record(row)


def _model_of(spec: Mapping[str, Json]) -> str | None:
    """The model that a study compresses; null for a study that compresses none."""
    match spec.get("compress"):
        case {"model": str(model_id)}:
            return model_id
        case _:
            return None


def _not_found(model_id: str) -> NotFound:
    return NotFound(f"there is no model {model_id!r}")
