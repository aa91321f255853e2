"""Rows copied: the first trials of a study as a study of its own, and all rows to another database.

The copies are of what the repositories wrote, by tables and columns as the program declares them.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from optuna.storages._rdb.models import BaseModel as OptunaTable
from sqlalchemy import (
    Connection,
    Engine,
    MetaData,
    Table,
    create_engine,
    func,
    insert,
    literal_column,
    select,
    text,
)

from storage.engine import with_driver
from storage.records import StudyState
from storage.tables import StudyRow
from storage.tables import Table as OurTable
from tests.benchmarks.thousands.filling import Cut

_BATCH = 2000

_WITHIN: Mapping[str, str] = {
    "trial": "number",
    "metric": "number",
    "trial_artifact": "number",
    "attempt": "trial",
    "measurement": "trial",
}
"""Tables of a study, and their column of the trial's number."""

_NAMES = {("attempt", "id"), ("measurement", "id"), ("trial", "measurement_id")}
"""Columns of ids that no two rows may share, and those that name them."""


def first_trials(url: str, study_id: str, copies: Mapping[str, Cut]) -> None:
    """Copy the first trials of a study: new id -> how much of the study."""
    engine = create_engine(with_driver(url))
    with engine.begin() as connection:
        for new_id, cut in copies.items():
            _copy_study(connection, study_id, new_id, cut)
    engine.dispose()


def _copy_study(connection: Connection, study_id: str, new_id: str, cut: Cut) -> None:
    table = OurTable.metadata.tables[StudyRow.__tablename__]
    row = dict(connection.execute(select(table).where(table.c.id == study_id)).mappings().one())
    budget = {**row["spec"]["budget"], "trials": cut.trials}
    row |= {
        "id": new_id,
        "spec": {**row["spec"], "budget": budget},
        "state": StudyState.RUNNING,
        "last_event": cut.events,
        "last_exchange": cut.exchanges,
    }
    connection.execute(insert(table).values(**row))
    tables = OurTable.metadata.tables
    limits = [(tables[name], column, cut.trials - 1) for name, column in _WITHIN.items()]
    limits.append((tables["event"], "number", cut.events))
    limits.append((tables["exchange"], "position", cut.exchanges))
    for table, place, last in limits:
        chosen = [
            literal_column(_sql(table.name, column.name, new_id)).label(column.name)
            for column in table.c
        ]
        where = (table.c.study_id == study_id, table.c[place] <= last)
        connection.execute(
            insert(table).from_select(
                [column.name for column in table.c],
                select(*chosen).select_from(table).where(*where),
            )
        )


def _sql(table: str, column: str, new_id: str) -> str:
    if column == "study_id":
        return f"'{new_id}'"
    return f"'{new_id}-' || {column}" if (table, column) in _NAMES else f'"{column}"'


def transferred(source_url: str, target_url: str, *, optuna: bool) -> None:
    """Copy all rows of our tables, or of Optuna's, into a database that has the empty tables."""
    metadata: MetaData = OptunaTable.metadata if optuna else OurTable.metadata
    source, target = (create_engine(with_driver(url)) for url in (source_url, target_url))
    with source.connect() as reading, target.begin() as writing:
        for table in metadata.sorted_tables:
            if table.name != "version_info":
                for rows in _batches(reading, table):
                    writing.execute(insert(table), rows)
        if optuna:
            _set_sequences(writing, metadata)
    _analysed(target)
    source.dispose()
    target.dispose()


def _batches(connection: Connection, table: Table) -> Iterator[Sequence[dict[str, Any]]]:
    rows = connection.execution_options(yield_per=_BATCH).execute(select(table)).mappings()
    for part in rows.partitions(_BATCH):
        yield [dict(row) for row in part]


def _set_sequences(connection: Connection, metadata: MetaData) -> None:
    """Let new rows have numbers of their own."""
    for table in metadata.sorted_tables:
        key = next(iter(table.primary_key))
        sequence = connection.scalar(select(func.pg_get_serial_sequence(table.name, key.name)))
        last = connection.scalar(select(func.max(key)))
        if sequence is not None and last is not None:
            connection.execute(select(func.setval(sequence, last)))


def _analysed(engine: Engine) -> None:
    """What PostgreSQL does by itself some time after so many rows were added."""
    automatic = engine.execution_options(isolation_level="AUTOCOMMIT")
    with automatic.connect() as connection:
        connection.execute(text("VACUUM ANALYZE"))
