"""Columns: the same values on both databases, and the same refusals."""

import json
import math
from datetime import datetime

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from storage.engine import Database
from storage.errors import NotFound, UnstorableValue
from storage.records import Json, StudyLabels
from storage.repositories.studies import Studies
from storage.repositories.trials import Trials
from tests.storage.records import add_study, trial

_NUMBERS = st.floats(allow_nan=False, allow_infinity=False)
_DOCUMENTS = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | _NUMBERS
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text('ab\\u0"', max_size=8), inner, max_size=4)
    ),
    max_leaves=12,
)


@given(document=_DOCUMENTS)
@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_documents_come_back_number_for_number_and_key_for_key(
    database: Database, document: Json
) -> None:
    with database.write() as session:
        study_id = add_study(session, spec={"document": document}).id
    with database.read() as session:
        stored = Studies(session).get(study_id).spec["document"]
    assert json.dumps(stored) == json.dumps(document)


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_documents_hold_only_finite_numbers(database: Database, number: float) -> None:
    with pytest.raises(UnstorableValue, match="finite"), database.write() as session:
        add_study(session, spec={"limits": [{"parameters": number}]})
    with database.read() as session:
        assert Studies(session).page(limit=1).items == []


def test_an_empty_document_is_not_a_missing_one(database: Database) -> None:
    with database.write() as session:
        study_id = add_study(session).id
        assert Studies(session).get(study_id).prepared is None
        Studies(session).set_prepared(study_id, {})
        assert Studies(session).get(study_id).prepared == {}


def test_a_time_without_a_zone_is_refused(database: Database) -> None:
    with pytest.raises(UnstorableValue, match="time zone"), database.write() as session:
        add_study(session, at=datetime(2026, 1, 1))


@pytest.mark.parametrize(
    ("given_text", "stored_text"),
    [("a\x00b", "a\ufffdb"), ("/tmp/\udcff", "/tmp/?"), ("\\u0000", "\\u0000"), ("☃", "☃")],
)
def test_text_that_no_database_holds_is_replaced(
    database: Database, given_text: str, stored_text: str
) -> None:
    with database.write() as session:
        study_id = add_study(session, name=given_text).id
    with database.read() as session:
        assert Studies(session).get(study_id).name == stored_text


def test_a_tag_that_no_database_holds_hides_no_other_study(database: Database) -> None:
    with database.write() as session:
        study_id = add_study(session).id
        Studies(session).set_labels(study_id, StudyLabels(tags=("a\x00b", "fine")))
    with database.read() as session:
        assert Studies(session).get(study_id).tags == ("a\ufffdb", "fine")
        for tag in ("fine", "a\x00b"):
            assert len(Studies(session).page(limit=1, tag=tag).items) == 1


def test_a_document_with_half_a_character_is_stored_without_it(database: Database) -> None:
    with database.write() as session:
        spec: dict[str, Json] = {"path\udcff": ["\ud83d", "\U0001f600", "\x00"]}
        study_id = add_study(session, spec=spec).id
    with database.read() as session:
        assert Studies(session).get(study_id).spec == {"path?": ["?", "\U0001f600", "\x00"]}


def test_an_integer_that_no_column_holds_is_the_callers_fault(database: Database) -> None:
    with database.write() as session:
        study_id = add_study(session).id
    with pytest.raises(UnstorableValue, match="no column holds"), database.write() as session:
        Trials(session).add(trial(study_id, 0, parameters=2**70))


def test_a_name_that_no_row_can_have_is_no_error_of_the_database(database: Database) -> None:
    with pytest.raises((NotFound, UnstorableValue)), database.read() as session:
        Studies(session).get("a\x00b")
