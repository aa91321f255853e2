import pytest
from sqlalchemy.orm import Session

from storage.engine import Database
from storage.errors import Conflict, IdempotencyConflict, NotFound
from storage.records import CollectionRecord, CollectionStudyRecord, StudyState
from storage.repositories.collections import Collections
from storage.repositories.studies import Studies
from tests.storage.records import START, add_study, after


def add_collection(session: Session, *studies: str, **given: object) -> CollectionRecord:
    fields = {"id": "several", "name": "wörter ☃", "source": {"tasks": [1e16]}, "at": START}
    collection = Collections(session).create(**{"budget": None, **fields, **given})  # pyright: ignore[reportArgumentType]
    members = [
        CollectionStudyRecord(
            collection_id=collection.id,
            study_id=study,
            position=position,
            row=f"row {position}",
            seed=2**32 - 1,
        )
        for position, study in enumerate(studies)
    ]
    if members:
        Collections(session).add_studies(members)
    return collection


def test_a_collection_comes_back_as_it_was_with_its_studies_in_order(database: Database) -> None:
    with database.write() as session:
        studies = [add_study(session).id for _ in range(3)][::-1]
        made = add_collection(session, *studies, budget={"trials": 3})
    with database.read() as session:
        found = Collections(session).get("several")
        members = Collections(session).members(["several", "other"])
    assert found == made
    assert (found.source, found.budget, found.created_at) == (
        {"tasks": [1e16]},
        {"trials": 3},
        START,
    )
    assert [one.study_id for one in members["several"]] == studies
    assert {one.seed for one in members["several"]} == {2**32 - 1}
    assert members["other"] == []


def test_an_unknown_collection_is_not_found(database: Database) -> None:
    with database.write() as session:
        for ask in (Collections(session).get, Collections(session).delete):
            with pytest.raises(NotFound, match="'nowhere'"):
                ask("nowhere")


def test_a_key_makes_one_collection_of_one_body(database: Database) -> None:
    key = {"idempotency_key": "once", "body_digest": "a"}
    with database.write() as session:
        first = add_collection(session, **key)
        again = add_collection(session, id="another", **key)
        assert again == first
        with pytest.raises(IdempotencyConflict, match="'once'"):
            add_collection(session, id="another", idempotency_key="once", body_digest="b")
        with pytest.raises(Conflict, match="'several'"):
            add_collection(session)
    with database.of("another tenant").write() as session:
        assert add_collection(session, id="theirs", **key).id == "theirs"


def test_states_are_counted_and_pages_come_newest_first(database: Database) -> None:
    with database.write() as session:
        first, second = add_study(session).id, add_study(session).id
        Studies(session).set_state(second, StudyState.FINISHED, at=START)
        add_collection(session, first, second)
        add_collection(session, id="newer", at=after(1))
    with database.read() as session:
        states = Collections(session).states(["several", "newer"])
        page = Collections(session).page(limit=1)
        rest = Collections(session).page(limit=1, cursor=page.next_cursor)
    assert states["several"] == {StudyState.QUEUED: 1, StudyState.FINISHED: 1}
    assert states["newer"] == {}
    assert [one.id for one in (*page.items, *rest.items)] == ["newer", "several"]
    assert rest.next_cursor is None


def test_budgets_are_open_while_a_study_may_go_on(database: Database) -> None:
    with database.write() as session:
        study = add_study(session).id
        add_collection(session, study, budget={"trials": 1})
        add_collection(session, add_study(session).id, id="without")
        assert [one.id for one in Collections(session).with_open_budgets()] == ["several"]
        Studies(session).set_state(study, StudyState.FINISHED, at=START)
        assert Collections(session).with_open_budgets() == []


def test_a_place_goes_with_its_study_and_with_its_collection(database: Database) -> None:
    with database.write() as session:
        first, second = add_study(session).id, add_study(session).id
        add_collection(session, first, second)
    with database.write() as session:
        Studies(session).delete(first)
    with database.write() as session:
        members = Collections(session).members(["several"])["several"]
        assert [one.study_id for one in members] == [second]
        Collections(session).delete("several")
    with database.read() as session:
        assert Collections(session).members(["several"]) == {"several": []}
        assert Studies(session).exists(second)


def test_a_study_of_another_tenant_is_in_no_collection(database: Database) -> None:
    with database.of("theirs").write() as session:
        study = add_study(session).id
    with pytest.raises(NotFound, match=study), database.of("ours").write() as session:
        add_collection(session, study)
    with database.of("theirs").write() as session:
        add_collection(session, study)
    with database.of("ours").read() as session:
        assert Collections(session).members(["several"]) == {"several": []}
        assert Collections(session).states(["several"]) == {"several": {}}
        assert Collections(session).page(limit=9).items == []
