"""Studies: the documents users sent, where each stands, and which coordinator has it."""

from collections.abc import Callable, Collection, Hashable, Mapping, Sequence, Set
from datetime import datetime
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Text,
    bindparam,
    column,
    delete,
    func,
    literal,
    or_,
    select,
    update,
)
from sqlalchemy.orm import Session
from sqlalchemy.sql.functions import FunctionElement

from storage.columns import storable_text
from storage.endings import StudyCause
from storage.errors import ClaimLost, Conflict, IdempotencyConflict, NotFound
from storage.locking import insert, lock_study, lock_study_to_decide
from storage.mapping import columns_of, reader
from storage.paging import newest_first
from storage.records import Json, Page, StudyLabels, StudyRecord, StudyState
from storage.tables import StudyRow
from storage.tenants import run, tenant_of

# Of what fronts and figures follow from, see `StudyRecord.data_version`.
_ANOTHER_VERSION: Mapping[str, Any] = {"data_version": StudyRow.data_version + 1}

# Each database's function that makes a JSON array a table with one column, `value`.
_ITEMS: Mapping[str, Callable[..., FunctionElement[Any]]] = {
    "sqlite": func.json_each,
    "postgresql": func.json_array_elements_text,
}

_record = reader(StudyRecord)
_NAMED = StudyRow.id.in_(bindparam("studies", expanding=True))
_WITH_IDS = select(*columns_of(StudyRecord, StudyRow)).where(_NAMED)
_VERSIONS = select(StudyRow.id, StudyRow.data_version)
_VERSIONS_OF = _VERSIONS.where(_NAMED)
_MARKS = select(
    StudyRow.id, StudyRow.data_version, StudyRow.last_event, StudyRow.running_seconds
).where(_NAMED)
_OURS = select(StudyRow.id).where(
    StudyRow.id == bindparam("study"), StudyRow.owner == bindparam("claims")
)


class Studies:
    """The studies of one session."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def create(
        self,
        *,
        id: str,
        name: str,
        spec: dict[str, Json],
        at: datetime,
        idempotency_key: str | None = None,
        body_digest: str | None = None,
    ) -> StudyRecord:
        """Add a queued study.

        Where another request has used the key with the same body, that one's study is returned: its
        id is not the given one, and nothing is stored.

        Raises:
            IdempotencyConflict: if the key was used with another body.
            Conflict: if there is a study with this id.
        """
        row = self._session.scalar(
            insert(self._session, StudyRow)
            .values(
                id=id,
                name=name,
                state=StudyState.QUEUED,
                spec=spec,
                created_at=at,
                running_seconds=0.0,
                last_event=0,
                last_exchange=0,
                data_version=0,
                idempotency_key=idempotency_key,
                body_digest=body_digest,
            )
            .on_conflict_do_nothing()
            .returning(StudyRow)
        )
        if row is not None:
            return _record(row)
        earlier = None
        if idempotency_key is not None:
            earlier = self.find_idempotent(idempotency_key, body_digest)
        if earlier is None:
            raise Conflict(f"there is a study with the id {id!r} already")
        return earlier

    def find_idempotent(self, key: str, body_digest: str | None) -> StudyRecord | None:
        """The tenant's study that was made with this key, if any.

        Raises:
            IdempotencyConflict: if it was made from another body.
        """
        row = self._session.scalar(
            select(StudyRow).where(
                StudyRow.tenant == tenant_of(self._session), StudyRow.idempotency_key == key
            )
        )
        if row is None:
            return None
        if row.body_digest != body_digest:
            raise IdempotencyConflict(
                f"the idempotency key {key!r} was used for study {row.id!r} with another body"
            )
        return _record(row)

    def get(self, study_id: str) -> StudyRecord:
        """One study; in a writing session nobody else changes it until the transaction ends.

        Raises:
            NotFound: if there is none.
        """
        lock_study_to_decide(self._session, study_id)
        row = run(self._session, _WITH_IDS, {"studies": [study_id]}).one_or_none()
        if row is None:
            raise _missing(study_id)
        return _record(row)

    def page(
        self,
        *,
        limit: int,
        cursor: str | None = None,
        state: StudyState | None = None,
        name: str | None = None,
        prefix: str | None = None,
        tag: str | None = None,
        text: str | None = None,
    ) -> Page[StudyRecord]:
        """Studies, newest first; each condition that is given has to hold.

        Args:
            limit: how many make a page.
            cursor: `next_cursor` of the page before.
            state: where they stand.
            name: their exact name.
            prefix: how their id begins.
            tag: one of their tags, exactly.
            text: a part of the name, of the notes or of a tag, or how the id begins; letters count
                as the same in either case (on PostgreSQL, those of its database's locale).

        Raises:
            BadCursor: if the cursor was not given out by this list.
        """
        equal = {"state": state, "name": name}
        where: list[ColumnElement[bool]] = []
        if prefix is not None:
            where.append(_begins_with(prefix))
        if tag is not None:
            where.append(self._has_tag(lambda found: found == storable_text(tag)))
        if text is not None:
            where.append(self._mentions(storable_text(text)))
        return newest_first(
            self._session,
            StudyRow,
            limit=limit,
            cursor=cursor,
            record=_record,
            where=where,
            **{column: value for column, value in equal.items() if value is not None},
        )

    def _mentions(self, text: str) -> ColumnElement[bool]:
        return or_(
            *(field.icontains(text, autoescape=True) for field in (StudyRow.name, StudyRow.notes)),
            self._has_tag(lambda tag: tag.icontains(text, autoescape=True)),
            _begins_with(text.lower()),
        )

    def _has_tag(
        self, is_meant: Callable[[ColumnElement[str]], ColumnElement[bool]]
    ) -> ColumnElement[bool]:
        tags = _ITEMS[self._session.get_bind().dialect.name](StudyRow.tags)
        # A table of its own in the query: each row has its own tags.
        item: ColumnElement[str] = column("value", Text())
        found = select(literal(1)).select_from(tags.table_valued(item)).where(is_meant(item))
        return found.correlate(StudyRow).exists()

    def ids(self) -> set[str]:
        """The ids of all studies."""
        return set(self._session.scalars(select(StudyRow.id)))

    def names(self) -> Mapping[str, str]:
        """The name of each study by its id, oldest first."""
        rows = self._session.execute(
            select(StudyRow.id, StudyRow.name).order_by(StudyRow.created_at, StudyRow.id)
        )
        return {study_id: name for study_id, name in rows}  # noqa: C416 - rows are no pairs to types

    def exists(self, study_id: str) -> bool:
        """Whether there is such a study."""
        query = select(StudyRow.id).where(StudyRow.id == study_id)
        return self._session.scalar(query) is not None

    def place(self, study_id: str) -> tuple[int, StudyState]:
        """The number of the study's last event, and its state.

        Raises:
            NotFound: if there is no such study.
        """
        query = select(StudyRow.last_event, StudyRow.state).where(StudyRow.id == study_id)
        row = self._session.execute(query).one_or_none()
        if row is None:
            raise _missing(study_id)
        return row.last_event, row.state

    def in_states(self, *states: StudyState) -> list[StudyRecord]:
        """All studies in one of these states, oldest first."""
        rows = self._session.scalars(
            select(StudyRow)
            .where(StudyRow.state.in_(states))
            .order_by(StudyRow.created_at, StudyRow.id)
        )
        return [_record(row) for row in rows]

    def ids_in_states(self, *states: StudyState) -> Sequence[str]:
        """The ids of all studies in one of these states, oldest first."""
        return self._session.scalars(
            select(StudyRow.id)
            .where(StudyRow.state.in_(states))
            .order_by(StudyRow.created_at, StudyRow.id)
        ).all()

    def with_ids(self, study_ids: Collection[str]) -> list[StudyRecord]:
        """Those of the named studies that are there."""
        rows = run(self._session, _WITH_IDS, {"studies": list(study_ids)})
        return [_record(row) for row in rows]

    def versions(self, study_ids: Collection[str] | None = None) -> dict[str, int]:
        """The versions of the data of those of the named studies that are there, or of all."""
        if study_ids is None:
            rows = self._session.execute(_VERSIONS)
        else:
            rows = run(self._session, _VERSIONS_OF, {"studies": list(study_ids)})
        return {study_id: version for study_id, version in rows}  # noqa: C416 - rows are no pairs

    def marks(self, study_ids: Collection[str]) -> dict[str, Hashable]:
        """Of those of the named studies that are there: what differs once their records differ.

        To read and to compare a record, with its document, takes many times as long.
        """
        rows = run(self._session, _MARKS, {"studies": list(study_ids)})
        return {row.id: tuple(row) for row in rows}

    def set_state(
        self,
        study_id: str,
        state: StudyState,
        *,
        at: datetime,
        cause: StudyCause | None = None,
        detail: str | None = None,
    ) -> None:
        """Move the study; its first `running` is its start, and only an end has a finish.

        Raises:
            NotFound: if there is no such study.
        """
        values: dict[str, Any] = {
            "state": state,
            "state_cause": cause,
            "state_detail": detail,
            "finished_at": at if state.has_ended else None,
            **_ANOTHER_VERSION,
        }
        if state is StudyState.RUNNING:
            values["started_at"] = func.coalesce(StudyRow.started_at, at)
        self._change(study_id, values)

    def set_ending(self, study_id: str, cause: StudyCause, detail: str) -> bool:
        """Say why no further trial is begun; False when that was said, and the first reason stays.

        Raises:
            NotFound: if there is no such study.
        """
        lock_study(self._session, study_id)
        changed = self._session.scalar(
            update(StudyRow)
            .where(StudyRow.id == study_id, StudyRow.ending_cause.is_(None))
            .values(ending_cause=cause, ending_detail=detail, **_ANOTHER_VERSION)
            .returning(StudyRow.id)
        )
        if changed is None:
            self.get(study_id)
        return changed is not None

    def set_labels(self, study_id: str, labels: StudyLabels) -> None:
        """Change those labels that are not null.

        Raises:
            NotFound: if there is no such study.
        """
        given = {name: value for name, value in vars(labels).items() if value is not None}
        self._change(study_id, {**given, **_ANOTHER_VERSION})

    def set_spec(self, study_id: str, spec: dict[str, Json]) -> None:
        """Replace the study's document.

        Raises:
            NotFound: if there is no such study.
        """
        self._change(study_id, {"spec": spec, **_ANOTHER_VERSION})

    def clear_ending(self, study_id: str) -> None:
        """Take back what `set_ending` said: trials are begun again.

        Raises:
            NotFound: if there is no such study.
        """
        self._change(study_id, {"ending_cause": None, "ending_detail": None, **_ANOTHER_VERSION})

    def set_prepared(self, study_id: str, prepared: dict[str, Json]) -> None:
        """Keep what the prepare job found.

        Raises:
            NotFound: if there is no such study.
        """
        self._change(study_id, {"prepared": prepared, **_ANOTHER_VERSION})

    def set_reference_point(self, study_id: str, point: dict[str, float]) -> None:
        """Fix the hypervolume's reference point.

        Raises:
            NotFound: if there is no such study.
        """
        self._change(study_id, {"reference_point": point, **_ANOTHER_VERSION})

    def add_running_seconds(self, study_id: str, seconds: float) -> None:
        """Count time spent in state `running`.

        Raises:
            NotFound: if there is no such study.
        """
        self._change(study_id, {"running_seconds": StudyRow.running_seconds + seconds})

    def delete(self, study_id: str) -> None:
        """Remove the study with its trials and all that belongs to them.

        Bytes stay in the store: their rows are the caller's to drop.

        Raises:
            NotFound: if there is no such study.
        """
        lock_study(self._session, study_id)
        gone = self._session.scalar(
            delete(StudyRow).where(StudyRow.id == study_id).returning(StudyRow.id)
        )
        if gone is None:
            raise _missing(study_id)

    def claim(self, study_id: str, *, owner: str, now: datetime, until: datetime) -> bool:
        """Take or renew the study for one coordinator; False while the claim of another holds."""
        free = or_(StudyRow.owner.is_(None), StudyRow.owner == owner, StudyRow.owned_until <= now)
        claimed = self._session.scalar(
            update(StudyRow)
            .where(StudyRow.id == study_id, free)
            .values(owner=owner, owned_until=until)
            .returning(StudyRow.id)
        )
        return claimed is not None

    def renew(self, study_ids: Collection[str], *, owner: str, until: datetime) -> Set[str]:
        """Renew the claims of one coordinator in one statement.

        Returns:
            The studies whose claims were renewed: not those that another has, nor those whose rows
            another transaction holds just now.
        """
        ours = select(StudyRow.id).where(StudyRow.id.in_(study_ids), StudyRow.owner == owner)
        # Who holds several studies' rows may lock them in another order: waiting here could never
        # end. SQLite has no locks of rows, and its dialect leaves them out.
        unlocked = ours.with_for_update(skip_locked=True)
        renewed = self._session.scalars(
            update(StudyRow)
            .where(StudyRow.id.in_(unlocked))
            .values(owned_until=until)
            .returning(StudyRow.id),
            execution_options={"synchronize_session": False},
        )
        return set(renewed)

    def prove_claim(self, study_id: str, owner: str) -> None:
        """Go on only if this coordinator has the study, which it keeps until the transaction ends.

        Raises:
            ClaimLost: if it has not.
        """
        lock_study_to_decide(self._session, study_id)
        ours = run(self._session, _OURS, {"study": study_id, "claims": owner})
        if ours.scalar() is None:
            raise ClaimLost(f"study {study_id!r} is not claimed by {owner!r} (any more)")

    def claims(self, *, other_than: str) -> dict[str, datetime]:
        """Until when each study is claimed, of those that other owners have."""
        rows = self._session.execute(
            select(StudyRow.id, StudyRow.owned_until).where(
                StudyRow.owner != other_than, StudyRow.owned_until.is_not(None)
            )
        )
        return {study_id: until for study_id, until in rows if until is not None}

    def release(self, study_id: str, owner: str) -> None:
        """Give the study up; harmless when another has it."""
        self._session.execute(
            update(StudyRow)
            .where(StudyRow.id == study_id, StudyRow.owner == owner)
            .values(owner=None, owned_until=None)
        )

    def _change(self, study_id: str, values: Mapping[str, Any]) -> None:
        changed = self._session.scalar(
            update(StudyRow).where(StudyRow.id == study_id).values(**values).returning(StudyRow.id)
        )
        if changed is None:
            raise _missing(study_id)


def listed(study_ids: Sequence[str]) -> str:
    """Studies as a sentence names them, the first few by their ids."""
    named = ", ".join(repr(study) for study in study_ids[:5])
    more = f" and {len(study_ids) - 5} more" if len(study_ids) > 5 else ""
    return f"{'study' if len(study_ids) == 1 else 'studies'} {named}{more}"


def _begins_with(prefix: str) -> ColumnElement[bool]:
    """Whether an id does; unlike LIKE, alike on both databases for letters of either case."""
    return func.substr(StudyRow.id, 1, len(prefix)) == storable_text(prefix)


def _missing(study_id: str) -> NotFound:
    return NotFound(f"there is no study {study_id!r}")
