"""The version of the tables: where the migrations are, and what may be done with which version.

Alembic is imported where there is something to migrate: it takes 11 MiB and a quarter of a second,
which processes that only look at the version need not spend.
"""

from pathlib import Path
from typing import TYPE_CHECKING

from sqlalchemy import Connection, String, column, func, inspect, select, table

from storage.errors import SchemaMismatch, StorageError

if TYPE_CHECKING:
    from alembic.config import Config

VERSION_TABLE = "reflectory_version"
"""Optuna keeps its own version in `alembic_version`, maybe in the same database."""

_MIGRATIONS = Path(__file__).parent / "migrations"
# Any number will do; every process that migrates waits for the same one.
_MIGRATION_LOCK = 0x7265666C


def migration_config(connection: Connection) -> "Config":
    """Alembic's configuration, made here so that an installed wheel needs no file beside it."""
    from alembic.config import Config

    config = Config()
    # Alembic interpolates % in its options.
    config.set_main_option("script_location", str(_MIGRATIONS).replace("%", "%%"))
    config.attributes["connection"] = connection
    return config


def upgrade(connection: Connection) -> None:
    """Bring the tables to this program's version, within the connection's transaction.

    Raises:
        SchemaMismatch: if they are of a version that this program does not know.
        StorageError: if rows would refer to what is not there; the transaction is not to be kept.
    """
    if connection.dialect.name == "postgresql":
        # Held until the transaction ends. A writing transaction on SQLite is alone as it is.
        connection.execute(select(func.pg_advisory_xact_lock(_MIGRATION_LOCK)))
    if _known_version(connection) == versions()[-1]:
        return
    from alembic import command

    command.upgrade(migration_config(connection), "head")
    if connection.dialect.name == "sqlite":
        # They are not looked at while tables are made anew.
        broken = connection.exec_driver_sql("PRAGMA foreign_key_check").all()
        if broken:
            raise StorageError(
                f"the migration would leave rows without what they refer to: {broken[:5]}"
            )


def check_schema(connection: Connection) -> None:
    """Prove that the tables are of this program's version.

    Raises:
        SchemaMismatch: if they are of another, or not there.
    """
    version, newest = _known_version(connection), versions()[-1]
    if version != newest:
        raise SchemaMismatch(
            f"the tables are of version {version}, this program's of {newest}; migrate the database"
        )


def versions() -> list[str]:
    """All versions of the tables, in order: each migration's file begins with its own."""
    files = (_MIGRATIONS / "versions").glob("[0-9]*_*.py")
    return sorted(file.name.partition("_")[0] for file in files)


def _known_version(connection: Connection) -> str | None:
    """The tables' version; null where there are none.

    Raises:
        SchemaMismatch: if this program does not know it.
    """
    if not inspect(connection).has_table(VERSION_TABLE):
        return None
    version = connection.execute(
        select(column("version_num", String())).select_from(table(VERSION_TABLE))
    )
    found = version.scalar()
    if found is not None and found not in versions():
        raise SchemaMismatch(
            f"the tables are of version {found}, which this program does not know: a newer "
            "one made them; install that one"
        )
    return found
