"""What befalls files: a database that is rolled back, one of an older program, flipped bytes."""

import os
import random
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

from alembic import command
from sqlalchemy import create_engine

from storage.engine import with_driver
from storage.schema import migration_config


def roll_back(database: Path) -> bool:
    """Lose what was committed and stands in the write-ahead log alone; nobody may use it meanwhile.

    What a power failure without `fsync` leaves, or a copy of the one file. Whoever was killed in
    the middle of writing the log into the database left pages of both, which only the log makes
    whole: then everything stays as it was.

    Returns:
        Whether anything was lost.
    """
    log = database.with_name(f"{database.name}-wal")
    kept = log.with_name(f"{log.name}.kept")
    if not log.exists() or log.stat().st_size == 0:
        return False
    log.rename(kept)
    _forget_index(database)
    with closing(sqlite3.connect(database)) as connection:
        whole = connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        whole = whole and not connection.execute("PRAGMA foreign_key_check").fetchall()
    if whole:
        kept.unlink()
    else:
        _forget_index(database)
        kept.rename(log)
    return whole


def _forget_index(database: Path) -> None:
    database.with_name(f"{database.name}-shm").unlink(missing_ok=True)


def step_back(url: str, steps: int = 1) -> None:
    """Make the tables those of a program that many migrations before this one."""
    # Not by our own `Database`: with its foreign keys on, a table that SQLite makes anew would
    # take all rows along that refer to it.
    engine = create_engine(with_driver(url))
    try:
        with engine.begin() as connection:
            command.downgrade(migration_config(connection), f"-{steps}")
    finally:
        engine.dispose()


def step_back_and_migrate(url: str, data_dir: Path) -> None:
    """Make the tables those of the program before this one, and have this one migrate them."""
    step_back(url)
    migrated = subprocess.run(
        [sys.executable, "-m", "service.cli", "migrate", "--data-dir", str(data_dir)],
        env={**os.environ, "REFLECTORY_DATABASE_URL": url},
        capture_output=True,
        text=True,
        check=False,
    )
    assert migrated.returncode == 0, migrated.stderr


def checkpoint(database: Path) -> None:
    """Have SQLite write its log into the database, so that a later loss is of what comes then."""
    with closing(sqlite3.connect(database, timeout=30)) as connection:
        connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()


def flip_a_byte(store: Path, generator: random.Random) -> str | None:
    """Damage one stored file, in place and without a trace in its name; its digest."""
    files = sorted(path for path in store.glob("??/*") if len(path.name) == 64)
    files = [path for path in files if path.stat().st_size > 0]
    if not files:
        return None
    chosen = generator.choice(files)
    content = bytearray(chosen.read_bytes())
    content[generator.randrange(len(content))] ^= 0xFF
    # As a disk does it: no writer, no new file.
    with chosen.open("r+b") as damaged:
        damaged.write(content)
    return chosen.name
