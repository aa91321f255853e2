"""The database of a server's data directory, for commands that need no server."""

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from service.commands.connection import fail, settings_of_server

if TYPE_CHECKING:
    from storage.engine import Database

_UNDONE = 1


@contextmanager
def local_database(data_dir: Path | None, *, as_json: bool) -> "Generator[Database]":
    """The database, of this program's version; errors end the command with their exit code."""
    # Only such commands need the database: the others start without it.
    from storage.engine import Database
    from storage.errors import StorageError

    settings = settings_of_server(data_dir=data_dir)
    try:
        settings.data_dir.mkdir(parents=True, exist_ok=True)
        database = Database(settings.database_url, quotas=settings.quotas.record)
        try:
            database.migrate()
            yield database
        finally:
            database.dispose()
    except (StorageError, OSError) as error:
        fail(str(error), _UNDONE, as_json=as_json)
