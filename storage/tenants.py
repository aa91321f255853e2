"""Whose rows a session reads and writes.

See Note [Tenants] in the README.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, TypeAlias, cast
from weakref import WeakKeyDictionary

from sqlalchemy import (
    ClauseElement,
    Executable,
    FromClause,
    Join,
    Select,
    TableClause,
    bindparam,
    select,
)
from sqlalchemy.orm import ORMExecuteState, Session, with_loader_criteria
from sqlalchemy.sql import visitors
from sqlalchemy.sql.base import ExecutableOption
from sqlalchemy.sql.dml import Insert
from sqlalchemy.sql.selectable import SelectBase

from storage.errors import NotFound
from storage.records import LOCAL
from storage.tables import StudyRow, Table

TENANT: Final = "tenant"
"""Key in `Session.info`: whose session it is; without it, it is nobody's (`Database.of`)."""

KEY: Final = "key_id"
"""Key in `Session.info`: the API key on whose behalf a tenant's session works."""

_ACROSS: Final = "across_tenants"

_WHOSE: Final = "tenant_of_the_session"
"""The parameter of statements that are narrowed once for all tenants."""

_AnySelect: TypeAlias = Select[*tuple[Any, ...]]

_NARROWED: Final[WeakKeyDictionary[_AnySelect, _AnySelect]] = WeakKeyDictionary()
"""What `run` has made of statements, for as long as they are there."""

_Parameters = Mapping[str, Any] | Sequence[Mapping[str, Any]]

ACROSS_TENANTS: Mapping[str, Any] = {_ACROSS: True}
"""Execution options of a statement that has to see every tenant's rows."""


def tenant_of(session: Session) -> str:
    """To whom what the session adds belongs."""
    return session.info.get(TENANT, LOCAL)


def narrow(state: ORMExecuteState) -> None:
    """Keep a statement within the session's tenant; to be called before every statement.

    Raises:
        NotFound: if it would add something to a study that is not the tenant's.
    """
    tenant = state.session.info.get(TENANT)
    if tenant is None or not state.is_orm_statement or state.execution_options.get(_ACROSS, False):
        return
    if isinstance(state.statement, Insert):
        state.statement = _narrowed_insert(state, state.statement, tenant)
    else:
        state.statement = state.statement.options(*_conditions_on(state.statement, tenant))  # pyright: ignore[reportAttributeAccessIssue]


def _narrowed_insert(state: ORMExecuteState, statement: Insert, tenant: str) -> Insert:
    columns = statement.table.c
    if TENANT in columns:
        return statement.values(tenant=tenant)
    if "study_id" in columns:
        named = set(_study_ids(state, statement))
        found = state.session.scalars(select(StudyRow.id).where(StudyRow.id.in_(named)))
        for foreign in named.difference(found):
            raise NotFound(f"there is no study {foreign!r}")
    return statement


def _study_ids(state: ORMExecuteState, statement: Insert) -> Iterator[str]:
    """The studies to which an insert adds rows."""
    given = state.parameters
    if given:
        rows = [given] if isinstance(given, Mapping) else given
        yield from (row["study_id"] for row in rows)
        return
    dialect = state.session.get_bind().dialect
    yield statement.compile(dialect=dialect).params["study_id"]


def _conditions_on(statement: Executable, tenant: str | None) -> Iterable[ExecutableOption]:
    """Those conditions that concern a statement: each of them costs time at every execution."""
    conditions = _conditions(tenant)
    named = _named_by(statement)
    if named is None:
        return conditions.values()
    return [conditions[name] for name in named if name in conditions]


def _named_by(statement: Executable) -> set[str] | None:
    """The tables that a statement names, its subqueries' too; None where that is not plain."""
    found: set[str] = set()
    for part in visitors.iterate(cast(ClauseElement, statement)):
        owner = cast(object, part if isinstance(part, FromClause) else getattr(part, "table", None))
        if isinstance(owner, TableClause):
            found.add(owner.name)
        elif owner is not None and not isinstance(owner, Join | SelectBase):
            return None
    return found


@lru_cache(maxsize=256)
def _conditions(tenant: str | None) -> Mapping[str, ExecutableOption]:
    """What a tenant's statements have to hold, for every table that they may name.

    Null: the tenant is a parameter.
    """
    whose: Any = tenant if tenant is not None else cast(Any, bindparam(_WHOSE))
    # The bare table: to the mapped class this condition would be added in turn.
    study = StudyRow.__table__
    studies = select(study.c.id).where(study.c.tenant == whose)
    conditions: dict[str, ExecutableOption] = {}
    for mapper in Table.registry.mappers:
        table: Any = mapper.class_
        if TENANT in mapper.columns:
            holds = table.tenant == whose
        elif "study_id" in mapper.columns:
            holds = table.study_id.in_(studies)
        else:
            continue
        conditions[table.__tablename__] = with_loader_criteria(table, holds, include_aliases=True)
    return conditions


def run(session: Session, statement: Executable, parameters: _Parameters | None = None) -> Any:
    """Execute a statement that names and returns columns past the ORM, in the same transaction.

    For what is done several times for each trial or answer: the ORM's part of a statement costs
    several times the statement itself. In a tenant's session it is narrowed to that one's rows as
    any other. Statements that are made once, with `bindparam`s, are the cheapest.

    Returns:
        SQLAlchemy's result, whose rows are of whatever columns the statement names.
    """
    tenant = session.info.get(TENANT)
    given = cast(Any, parameters)
    if tenant is None:
        return session.connection().execute(statement, given)
    if isinstance(statement, Select) and not isinstance(parameters, Sequence):
        narrowed = _narrowed_select(cast(_AnySelect, statement))
        return session.connection().execute(narrowed, {**(given or {}), _WHOSE: tenant})
    return session.execute(cast(Executable, statement), given)


def _narrowed_select(statement: _AnySelect) -> _AnySelect:
    """The same for the rows of one tenant, which is a parameter; made once for each statement."""
    known = _NARROWED.get(statement)
    if known is None:
        across = statement.get_execution_options().get(_ACROSS, False)
        conditions = () if across else _conditions_on(statement, None)
        known = _NARROWED[statement] = statement.options(*conditions)
    return known
