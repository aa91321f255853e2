"""The version of the tables: where the migrations are, and what may be done with which version."""

from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from alembic.util import CommandError
from sqlalchemy import Connection, func, select

from storage.errors import SchemaMismatch, StorageError

VERSION_TABLE = "reflectory_version"
"""Optuna keeps its own version in `alembic_version`, maybe in the same database."""

_MIGRATIONS = Path(__file__).parent / "migrations"
# Any number will do; every process that migrates waits for the same one.
_MIGRATION_LOCK = 0x7265666C


def migration_config(connection: Connection) -> Config:
    """Alembic's configuration, made here so that an installed wheel needs no file beside it."""
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
    config = migration_config(connection)
    before = _known_revision(connection, config)
    command.upgrade(config, "head")
    if connection.dialect.name == "sqlite" and before != _known_revision(connection, config):
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
    config = migration_config(connection)
    revision = _known_revision(connection, config)
    head = ScriptDirectory.from_config(config).get_current_head()
    if revision != head:
        raise SchemaMismatch(
            f"the tables are of version {revision}, this program's of {head}; migrate the database"
        )


def _known_revision(connection: Connection, config: Config) -> str | None:
    context = MigrationContext.configure(connection, opts={"version_table": VERSION_TABLE})
    revision = context.get_current_revision()
    if revision is not None:
        try:
            ScriptDirectory.from_config(config).get_revision(revision)
        except CommandError as error:
            raise SchemaMismatch(
                f"the tables are of version {revision}, which this program does not know: a newer "
                "one made them; install that one"
            ) from error
    return revision
