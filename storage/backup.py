"""A backup of a running site: its rows, and all bytes that they name, as one folder.

See Note [Whole backups] in the README.
"""

import os
import shutil
import sqlite3
import subprocess
import tempfile
from collections.abc import Collection
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from psycopg.conninfo import make_conninfo
from psycopg.pq import Conninfo
from sqlalchemy import make_url

from storage.blobs import ArtifactStore, LocalArtifactStore
from storage.engine import Database
from storage.errors import ArtifactNotFound, DatabaseUnavailable, StorageError
from storage.repositories import ArtifactRows

ARTIFACTS = "artifacts"
"""The folder of the bytes in a backup, as in a data directory."""
SQLITE_FILE = "reflectory.db"
"""The rows of a SQLite database, under the name that a data directory has for them."""
POSTGRESQL_FILE = "reflectory.pgdump"
"""The rows of a PostgreSQL database, for `pg_restore`."""

UNFINISHED = ".unfinished-"
"""What the names of rows begin with that are still being copied."""
_LONGEST_SECONDS = 3600.0
"""How long the rows may take, while others wait to name bytes."""


@dataclass(frozen=True)
class BackedUp:
    """What is in a backup."""

    rows: Path
    """The file of the rows."""
    artifacts: int
    """How many artifacts they name."""
    copied: int
    """How many of them were not there from an earlier backup."""


def back_up(url: str, store: ArtifactStore, folder: Path) -> BackedUp:
    """Copy rows and bytes into a folder of backups, while others work on; see Note [Whole backups].

    Raises:
        ArtifactNotFound: rows name bytes that the store does not have.
        ArtifactDamaged: stored bytes do not have their digest any more.
        DatabaseUnavailable: the database does not answer.
        StorageError: PostgreSQL's `pg_dump` is missing, or failed.
    """
    file = make_url(url).database
    if url.startswith("sqlite") and not (file and Path(file).exists()):
        # SQLite would make an empty one.
        raise DatabaseUnavailable(f"there is no database {file}")
    target = LocalArtifactStore(folder / ARTIFACTS)
    database = Database(url, idle_seconds=_LONGEST_SECONDS)
    try:
        with database.read() as session:
            early = ArtifactRows(session).digests()
        copied = _copy(early, store, target, may_be_gone=True)
        with database.write() as session:
            rows = ArtifactRows(session)
            rows.lock_names()
            named = rows.digests()
            # Of a backup that was killed: no other one of these rows is here while they are locked.
            for left in folder.glob(f"{UNFINISHED}*"):
                left.unlink()
            unfinished = _unfinished(folder)
            try:
                if database.is_sqlite:
                    _copy_sqlite(url, unfinished)
                else:
                    _dump_postgresql(url, unfinished)
                copied += _copy(named, store, target)
                place = folder / (SQLITE_FILE if database.is_sqlite else POSTGRESQL_FILE)
                unfinished.replace(place)
            finally:
                unfinished.unlink(missing_ok=True)
            # Within the transaction: after it another backup may have begun, which has copied
            # bytes that are not named here.
            for digest in set(target.digests()) - set(named):
                target.remove(digest)
    finally:
        database.dispose()
    return BackedUp(rows=place, artifacts=len(named), copied=copied)


def _copy(
    digests: Collection[str],
    store: ArtifactStore,
    target: ArtifactStore,
    *,
    may_be_gone: bool = False,
) -> int:
    """Copy what the target lacks; how many that were."""
    there = set(target.digests())
    copied = 0
    for digest in digests:
        if digest in there:
            continue
        try:
            reader = store.open_reader(digest)
        except ArtifactNotFound:
            if may_be_gone:
                continue
            raise
        with closing(reader):
            target.write(digest, reader)
        copied += 1
    return copied


def _unfinished(folder: Path) -> Path:
    handle, name = tempfile.mkstemp(prefix=UNFINISHED, dir=folder)
    os.close(handle)
    return Path(name)


def _copy_sqlite(url: str, target: Path) -> None:
    """SQLite's own online copy, which sees one state of the file."""
    file = make_url(url).database
    assert file is not None
    with (
        closing(sqlite3.connect(f"{Path(file).absolute().as_uri()}?mode=ro", uri=True)) as source,
        closing(sqlite3.connect(target)) as copy,
    ):
        source.backup(copy)


def _dump_postgresql(url: str, target: Path) -> None:
    program = shutil.which("pg_dump")
    if program is None:
        raise StorageError(
            "the rows are in PostgreSQL, and its program pg_dump is not here; install the client "
            "programs of the server's version"
        )
    dump = subprocess.run(
        [program, "--format=custom", "--no-owner", "--no-privileges", "--file", str(target)],
        env={**os.environ, **_libpq_environment(url)},
        capture_output=True,
        text=True,
        check=False,
    )
    if dump.returncode:
        said = dump.stderr.strip().splitlines() or [f"status {dump.returncode}"]
        raise StorageError(f"pg_dump failed: {said[-1]}")


def _libpq_environment(url: str) -> dict[str, str]:
    """The connection as variables of the environment: arguments are seen by the whole machine."""
    parsed = make_url(url).set(drivername="postgresql")
    text = make_conninfo(parsed.render_as_string(hide_password=False))
    return {
        option.envvar.decode(): option.val.decode()
        for option in Conninfo.parse(text.encode())
        if option.envvar and option.val is not None
    }
