"""What alembic runs for every command: the connection and its transaction are the caller's."""

from alembic import context
from sqlalchemy import Connection

from storage.schema import VERSION_TABLE
from storage.tables import Table


def _is_ours(name: str | None, kind: str, _parents: object) -> bool:
    """Whether a reflected thing belongs to us: Optuna's tables may be in the same database."""
    return kind != "table" or name in Table.metadata.tables


def _run(connection: Connection) -> None:
    context.configure(
        connection=connection,
        target_metadata=Table.metadata,
        version_table=VERSION_TABLE,
        include_name=_is_ours,
        # SQLite alters a table by making it anew.
        render_as_batch=connection.dialect.name == "sqlite",
    )
    with context.begin_transaction():
        context.run_migrations()


_run(context.config.attributes["connection"])
