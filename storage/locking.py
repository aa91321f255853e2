"""What the repositories share: locks on studies and keys, and inserts that meet their row."""

from collections.abc import Collection, Mapping
from functools import cache
from typing import Any, TypeAlias

from sqlalchemy import ScalarSelect, bindparam, func, inspect, select, update
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session
from sqlalchemy.sql.selectable import TypedReturnsRows

from storage.columns import LARGEST_INTEGER
from storage.errors import NotFound
from storage.tables import AttemptRow, StudyRow, Table
from storage.tenants import run

WRITING = "writing"
"""Key in `Session.info`: whether the session is a writing one (set by `Database.write`)."""

_LOCKED = "locked"
"""Key in `Session.info`: the studies that this session has locked."""

_LOCKED_OF = "locked_of"
"""Key in `Session.info`: the attempts whose studies it has locked."""

_NEXT_VERSION = (
    update(StudyRow)
    .where(StudyRow.id == bindparam("study"))
    .values(data_version=StudyRow.data_version + 1)
)

_HELD_ONE = (
    select(StudyRow.id).where(StudyRow.id == bindparam("study")).with_for_update(key_share=True)
)
_HELD = (
    select(StudyRow.id)
    .where(
        StudyRow.id.in_(
            select(AttemptRow.study_id).where(
                AttemptRow.id.in_(bindparam("attempts", expanding=True))
            )
        )
    )
    .order_by(StudyRow.id)
    .with_for_update(key_share=True)
)

Insert: TypeAlias = sqlite.Insert | postgresql.Insert


def lock_study(session: Session, study_id: str) -> None:
    """Make this transaction the only writer of the study until it ends.

    See Note [One writer per study] in the README.
    """
    # A session has one transaction, which keeps what it has locked.
    locked: set[str] = session.info.setdefault(_LOCKED, set[str]())
    if study_id not in locked and session.get_bind().dialect.name == "postgresql":
        locked.update(run(session, _HELD_ONE, {"study": study_id}).scalars())


def lock_key(session: Session, *key: Any) -> None:
    """Let no other transaction that locks the same key go on until this one ends.

    The key is one number, or two, as PostgreSQL's advisory locks have them. On SQLite a writing
    transaction is alone as it is.
    """
    if session.get_bind().dialect.name == "postgresql":
        session.execute(select(func.pg_advisory_xact_lock(*key)))


def lock_studies_of(session: Session, attempt_ids: Collection[str]) -> None:
    """Take `lock_study` for the studies of these attempts, in the one order that all take."""
    known: set[str] = session.info.setdefault(_LOCKED_OF, set[str]())
    new = [one for one in attempt_ids if one not in known]
    if new and session.get_bind().dialect.name == "postgresql":
        locked: set[str] = session.info.setdefault(_LOCKED, set[str]())
        locked.update(run(session, _HELD, {"attempts": new}).scalars())
        known.update(new)


def lock_study_to_decide(session: Session, study_id: str) -> None:
    """Take `lock_study` in a writing session, whose reads are decisions; readers never wait."""
    if session.info.get(WRITING, False):
        lock_study(session, study_id)


def lock_study_of_to_decide(session: Session, attempt_id: str) -> None:
    """Take `lock_study_to_decide` for the study of an attempt."""
    if session.info.get(WRITING, False):
        lock_studies_of(session, [attempt_id])


def note_change(session: Session, study_id: str) -> None:
    """Give the study's data another version, see `StudyRecord.data_version`."""
    run(session, _NEXT_VERSION, {"study": study_id})


def next_version(study_id: str) -> ScalarSelect[int]:
    """The version that `note_change` is about to give the study's data, for rows that change."""
    version = select(StudyRow.data_version + 1).where(StudyRow.id == study_id)
    return version.scalar_subquery()


def insert(session: Session, table: type[Table]) -> Insert:
    """An insert of the session's own dialect, for the ON CONFLICT that both spell alike."""
    if session.get_bind().dialect.name == "postgresql":
        return postgresql.insert(table)
    return sqlite.insert(table)


@cache
def _adding(dialect: str, table: type[Table]) -> TypedReturnsRows[Any]:
    """An insert that does nothing on a conflict, and gives what it wrote of the primary key."""
    of = postgresql if dialect == "postgresql" else sqlite
    return of.insert(table).on_conflict_do_nothing().returning(*inspect(table).primary_key)


def add(session: Session, table: type[Table], values: Mapping[str, Any], *, missing: str) -> bool:
    """Insert a row; whether it is new. On a conflict nothing is done.

    Raises:
        NotFound: with `missing`, if a row that the new one belongs to does not exist.
    """
    statement = _adding(session.get_bind().dialect.name, table)
    try:
        return run(session, statement, values).first() is not None
    except IntegrityError as error:
        raise NotFound(missing) from error


def storable_integer(number: int) -> bool:
    """Whether an integer column could hold it: what it cannot hold is not there to be found."""
    return 0 <= number <= LARGEST_INTEGER
