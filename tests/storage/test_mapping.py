"""Rows are mapped by the names of their fields; what is only passed through is named nowhere."""

import ast
import builtins
from dataclasses import dataclass, fields
from datetime import datetime
from enum import StrEnum
from pathlib import Path

import pytest
from sqlalchemy import create_engine, insert, select
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

import storage
from storage.columns import FiniteFloat, Instant, Texts, document, word
from storage.engine import Database
from storage.mapping import columns_of, reader, values_of
from storage.records import Json, TrialOutcome, TrialRecord
from storage.repositories.trials import Trials
from storage.tables import TrialRow
from tests.storage.records import START, add_study, after, digest, trial

_STORAGE = Path(storage.__file__).parent
_KEY = {"study_id", "number"}
_DECIDED_BY = {
    *("state", "origin", "dispatched", "repeats", "continues", "stopping"),
    *("created_at", "started_at", "finished_at", "told_at"),
    *("quality", "parameters", "epochs_trained", "drawn", "spec", "shape_key"),
    *("throughput", "throughput_ratio", "measurement_id", "artifacts", "exports"),
    *("predicted", "stretch", "pausing"),
}
"""What queries look for, order by or change by itself."""
_OF_OTHERS = {"cause", "detail", "latency_p50", "latency_p99"}
"""What attempts or measurements have too, under the same names."""


class Colour(StrEnum):
    RED = "red"
    GREEN = "green"


class Base(DeclarativeBase):
    type_annotation_map = {  # noqa: RUF012
        Colour: word(Colour),
        float: FiniteFloat(),
        datetime: Instant(),
    }


class ThingRow(Base):
    __tablename__ = "thing"

    id: Mapped[int] = mapped_column(primary_key=True)
    colour: Mapped[Colour | None]
    size: Mapped[float]
    at: Mapped[datetime]
    words: Mapped[tuple[str, ...]] = mapped_column(Texts())
    facts: Mapped[dict[str, Json]] = mapped_column(document())


@dataclass(frozen=True, kw_only=True)
class Thing:
    id: int
    colour: Colour | None = None
    size: float
    at: datetime
    words: tuple[str, ...]
    facts: dict[str, Json]
    owner: str = "nobody"


def test_enums_times_and_json_come_back_as_they_were_without_being_named() -> None:
    engine = create_engine("sqlite://")
    Base.metadata.create_all(engine)
    things = [
        Thing(id=1, size=0.5, at=START, words=(), facts={}, owner="us"),
        Thing(
            id=2,
            colour=Colour.GREEN,
            size=1e-320,
            at=after(1),
            words=("ä", "b"),
            facts={"list": [1, None], "nested": {"x": 1e16}},
            owner="us",
        ),
    ]
    read = reader(Thing, "owner")
    with Session(engine) as session:
        session.execute(insert(ThingRow), [values_of(thing, "owner") for thing in things])
        rows = session.scalars(select(ThingRow).order_by(ThingRow.id)).all()
        assert [read(row, owner="us") for row in rows] == things
    engine.dispose()


def test_a_field_that_no_column_has_is_refused_when_rows_are_read() -> None:
    row = ThingRow(id=1, colour=None, size=1.0, at=START, words=(), facts={})
    with pytest.raises(AttributeError, match="owner"):
        reader(Thing)(row)


def test_every_field_of_a_trial_is_stored_and_read(database: Database) -> None:
    """Also those that nobody has thought of yet: each has a value other than its default."""
    told = {
        "quality": 0.5,
        "test_quality": 0.25,
        "test_metrics": {"accuracy": 0.25},
        "best_epoch": 3,
        "violation": 0.125,
    }
    outcome = TrialOutcome.of(object(), **told)
    record = trial("s", 0, **told, repeats=None, epochs_trained=4, shape_key=digest("shape"))
    with database.write() as session:
        add_study(session, id="s")
        Trials(session).add(record)
    with database.read() as session:
        assert Trials(session).get("s", 0) == record
    assert TrialOutcome.of(record) == outcome
    columns = {column.key for column in columns_of(TrialOutcome, TrialRow)}
    assert columns == {field.name for field in fields(TrialOutcome)}


def named_in(file: Path) -> set[str]:
    """Every name, attribute, keyword and text of a module."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text())):
        match node:
            case ast.Attribute(attr=name) | ast.Name(id=name) | ast.arg(arg=name):
                found.add(name)
            case ast.keyword(arg=str(name)) | ast.Constant(value=str(name)):
                found.add(name)
            case _:
                pass
    return found


def test_a_stored_field_of_a_trial_is_named_by_its_table_its_record_and_its_migration_alone() -> (
    None
):
    """A new one needs these three and the answer that shows it: see the README of storage."""
    passed_through = {field.name for field in fields(TrialRecord)}
    # `bytes` is a word of Python's own, too.
    passed_through -= _KEY | _DECIDED_BY | _OF_OTHERS | set(dir(builtins))
    assert {"test_quality", "test_metrics", "best_epoch", "violation"} <= passed_through
    allowed = {
        _STORAGE / "records.py",
        _STORAGE / "tables" / "trial.py",
        _STORAGE / "repositories" / "trial_summaries.py",
        *(_STORAGE / "migrations").rglob("*.py"),
    }
    others = [file for file in _STORAGE.rglob("*.py") if file not in allowed]
    assert len(others) > 40
    for file in others:
        assert not passed_through & named_in(file), file
