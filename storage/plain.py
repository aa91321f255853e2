"""Statements past the ORM, for what is done several times for each trial.

The ORM's part of a statement (unwrapping entities, compiling their loading, states of sessions)
costs several times the statement itself. Whoever asks for columns needs none of it.
"""

from collections.abc import Mapping, Sequence
from typing import Any, cast

from sqlalchemy import Executable
from sqlalchemy.orm import Session

from storage.tenants import TENANT

_Parameters = Mapping[str, Any] | Sequence[Mapping[str, Any]]


def run(session: Session, statement: Executable, parameters: _Parameters | None = None) -> Any:
    """Execute a statement that names and returns columns, in the session's transaction.

    In a tenant's session it is narrowed to that one's rows as any other, see `storage.tenants`.
    Statements that are made once, with `bindparam`s, are the cheapest.

    Returns:
        SQLAlchemy's result, whose rows are of whatever columns the statement names.
    """
    if session.info.get(TENANT) is not None:
        return session.execute(statement, parameters)
    return session.connection().execute(statement, cast(Any, parameters))
