"""The migrations: up, down, several at once, beside Optuna, and by another program's version."""

import multiprocessing
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.synchronize import Barrier

import optuna
import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, Engine, create_engine, inspect, make_url, text

from storage.engine import Database
from storage.errors import SchemaMismatch
from storage.fleet.bookings import Bookings
from storage.repositories.metrics import Metrics
from storage.schema import VERSION_TABLE, migration_config, versions
from storage.tables import Table
from tests.storage.records import add_study, add_trial, metric


@pytest.fixture
def plain_engine(database_url: str) -> Iterator[Engine]:
    """An engine that is not the package's own, to look at what it left behind."""
    url = make_url(database_url)
    if url.get_backend_name() == "postgresql":
        url = url.set(drivername="postgresql+psycopg")
    engine = create_engine(url)
    yield engine
    engine.dispose()


@contextmanager
def _connected(engine: Engine) -> Iterator[Connection]:
    with engine.begin() as connection:
        yield connection


def test_migrations_make_exactly_the_tables_that_the_code_declares(
    database: Database, plain_engine: Engine
) -> None:
    with _connected(plain_engine) as connection:
        options = {"version_table": VERSION_TABLE, "compare_type": True}
        context = MigrationContext.configure(connection, opts=options)
        assert compare_metadata(context, Table.metadata) == []
        found = inspect(connection)
        for table in Table.metadata.sorted_tables:
            indexes = {index["name"]: index["unique"] for index in found.get_indexes(table.name)}
            for declared in table.indexes:
                assert bool(indexes[str(declared.name)]) == bool(declared.unique)


def test_partial_indexes_keep_their_condition(database: Database, plain_engine: Engine) -> None:
    where = {
        "sqlite": "SELECT name, sql FROM sqlite_master WHERE type = 'index' AND sql IS NOT NULL",
        "postgresql": "SELECT indexname, indexdef FROM pg_indexes",
    }
    with _connected(plain_engine) as connection:
        rows = connection.execute(text(where[plain_engine.dialect.name]))
        definitions = {row[0]: row[1] for row in rows}
    for name in (
        "uq_attempt_open",
        "uq_attempt_study_job",
        "ix_attempt_lease",
        "ix_trial_untold",
    ):
        assert "WHERE" in definitions[name]


def test_downgrade_to_the_base_leaves_nothing_but_the_version_table(
    database: Database, plain_engine: Engine
) -> None:
    with _connected(plain_engine) as connection:
        command.downgrade(migration_config(connection), "base")
    assert inspect(plain_engine).get_table_names() == [VERSION_TABLE]
    database.migrate()
    assert set(inspect(plain_engine).get_table_names()) >= set(Table.metadata.tables)


def test_curves_outlive_the_way_to_the_first_version_and_back(
    database: Database, plain_engine: Engine
) -> None:
    with database.write() as session:
        study = add_study(session).id
        add_trial(session, study)
        told = metric(1, gradient_first=0.5, gradient_last=2.0, recovered_batches=3)
        Metrics(session).put(study, 0, told)
    with _connected(plain_engine) as connection:
        command.downgrade(migration_config(connection), "0001")
    names = {column["name"] for column in inspect(plain_engine).get_columns("metric")}
    assert "spectral_margin" in names
    added = {"gradient_first", "gradient_last", "recovered_batches"} | {
        "probes",
        "generalization_term",
        "validation_loss",
    }
    assert names.isdisjoint(added)
    with pytest.raises(SchemaMismatch, match=r"0001.*migrate"):
        database.check()
    database.migrate()
    database.check()
    with database.read() as session:
        assert Metrics(session).curve(study, 0) == [metric(1)]


def test_places_that_older_programs_reserved_are_free(
    database: Database, plain_engine: Engine
) -> None:
    booking = "INSERT INTO booking (attempt_id, machine_id, place, owner, state, booked_at) VALUES"
    with _connected(plain_engine) as connection:
        command.downgrade(migration_config(connection), "0023")
        for state in ("reserved", "running", "exited"):
            at = f"('of-{state}', 'm', 'gpu-{state}', 'a', '{state}', '2026-11-01 00:00:00')"
            connection.execute(text(f"{booking} {at}"))
    database.migrate()
    with database.read() as session:
        assert [one.attempt_id for one in Bookings(session).all()] == ["of-exited", "of-running"]


def test_each_migration_is_named_by_its_version_and_follows_the_one_before() -> None:
    config = migration_config(create_engine("sqlite://").connect())
    chain = [script.revision for script in ScriptDirectory.from_config(config).walk_revisions()]
    assert versions() == chain[::-1]


def test_migrating_twice_is_harmless(database: Database) -> None:
    database.migrate()
    database.check()


def _migrate_together(urls: list[str], together: Barrier) -> None:
    for url in urls:
        database = Database(url)
        together.wait(600)
        database.migrate()
        database.check()
        database.dispose()


def test_processes_that_migrate_at_once_all_succeed(database_url: str) -> None:
    urls = [database_url]
    if make_url(database_url).get_backend_name() == "sqlite":
        # The moment at which two find a new file without a write-ahead log is short: many tries.
        urls += [f"{database_url}.{attempt}" for attempt in range(12)]
    spawn = multiprocessing.get_context("spawn")
    together = spawn.Barrier(3)
    migrating = [
        spawn.Process(target=_migrate_together, args=(urls, together))
        for _ in range(together.parties)
    ]
    for process in migrating:
        process.start()
    for process in migrating:
        process.join()
    assert [process.exitcode for process in migrating] == [0, 0, 0]


def test_a_database_of_a_newer_program_is_left_alone(
    database: Database, plain_engine: Engine
) -> None:
    with _connected(plain_engine) as connection:
        connection.execute(text(f"UPDATE {VERSION_TABLE} SET version_num = '9999'"))
    with pytest.raises(SchemaMismatch, match=r"9999.*newer"):
        database.migrate()
    with pytest.raises(SchemaMismatch, match=r"9999.*newer"):
        database.check()


def test_a_database_without_tables_does_not_pass_the_check(database_url: str) -> None:
    database = Database(database_url)
    with pytest.raises(SchemaMismatch, match="migrate"):
        database.check()
    database.dispose()


@pytest.mark.parametrize("database_url", ["postgresql"], indirect=True)
def test_optuna_may_keep_its_tables_in_the_same_database(
    database_url: str, plain_engine: Engine
) -> None:
    optuna_url = plain_engine.url.render_as_string(hide_password=False)
    storage = optuna.storages.RDBStorage(optuna_url)
    database = Database(database_url)
    database.migrate()
    database.check()
    study = optuna.create_study(storage=storage, study_name="beside ours")
    study.tell(study.ask(), 1.0)
    assert len(study.trials) == 1
    with _connected(plain_engine) as connection:
        command.downgrade(migration_config(connection), "base")
    assert optuna.load_study(study_name="beside ours", storage=storage).best_value == 1.0
    storage.engine.dispose()
    database.dispose()
