"""New databases with today's tables, copied from one that went through the migrations.

Migrations take a tenth of a second and a copy a millisecond. What they do is for
`tests.storage.test_schema` to say.
"""

import shutil
import tempfile
from functools import cache
from pathlib import Path

from sqlalchemy import make_url

from storage.engine import Database


def migrated(url: str) -> Database:
    """The database, with today's tables; a new SQLite file is a copy."""
    database = Database(url)
    file = make_url(url).database
    if database.is_sqlite and file is not None and not Path(file).exists():
        shutil.copyfile(Path(_folder().name) / "template.db", file)
    else:
        database.migrate()
    return database


@cache
def _folder() -> "tempfile.TemporaryDirectory[str]":
    """A folder with a migrated SQLite file, which goes with this process."""
    folder = tempfile.TemporaryDirectory(prefix="reflectory-template-")
    database = Database(f"sqlite:///{Path(folder.name) / 'template.db'}")
    database.migrate()
    database.dispose()
    return folder
