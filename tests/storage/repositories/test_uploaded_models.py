"""Uploaded models: stored once, paged, kept while used; and their bytes, while they are named."""

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from storage.engine import Database
from storage.errors import BadCursor, Conflict, NotFound
from storage.records import ArtifactRecord, StudyState
from storage.repositories.artifact_rows import ArtifactRows
from storage.repositories.studies import Studies
from storage.repositories.uploaded_models import UploadedModels
from tests.storage.records import START, add_model, add_study, add_trial, after, uploaded_model


def test_a_model_comes_back_as_it_was_stored(database: Database) -> None:
    record = uploaded_model()
    with database.write() as session:
        assert add_model(session, record) == record
    with database.read() as session:
        assert UploadedModels(session).get(record.id) == record
        assert UploadedModels(session).find(record.fingerprint) == record
        assert ArtifactRows(session).digests() == [record.sha256]


def test_one_of_many_at_once_is_stored(database: Database) -> None:
    record = uploaded_model()
    together = threading.Barrier(4)

    def race(number: int) -> str:
        together.wait(300)
        with database.write() as session:
            return add_model(session, replace(record, id=f"racer-{number}", name="other")).id

    with ThreadPoolExecutor(4) as pool:
        ids = set(pool.map(race, range(4)))
    assert len(ids) == 1
    with database.read() as session:
        assert [found.id for found in UploadedModels(session).page(limit=10).items] == list(ids)


def test_paging_visits_every_model_once_newest_first(database: Database) -> None:
    # Two share a time, so that the id has to tell them apart.
    made = [uploaded_model(created_at=after(number // 2)) for number in range(5)]
    with database.write() as session:
        for record in made:
            add_model(session, record)
    with database.read() as session:
        first = UploadedModels(session).page(limit=3)
        rest = UploadedModels(session).page(limit=3, cursor=first.next_cursor)
        with pytest.raises(BadCursor):
            UploadedModels(session).page(limit=3, cursor="nonsense")
    expected = sorted(made, key=lambda record: (record.created_at, record.id), reverse=True)
    assert first.items + rest.items == expected
    assert rest.next_cursor is None


@pytest.mark.parametrize("state", [state for state in StudyState if not state.has_ended])
def test_a_model_in_use_stays_until_the_study_has_ended(
    database: Database, state: StudyState
) -> None:
    record = uploaded_model()
    with database.write() as session:
        add_model(session, record)
        study = add_study(session, spec={"compress": {"model": record.id}}).id
        add_study(session, spec={"compress": {"model": "another"}})
        add_study(session, spec={"compress": None})
        Studies(session).set_state(study, state, at=START)
    with database.write() as session, pytest.raises(Conflict, match=f"{record.id}.*{study}"):
        UploadedModels(session).delete(record.id)
    with database.write() as session:
        assert UploadedModels(session).used_by(record.id) == [study]
        Studies(session).set_state(study, StudyState.FINISHED, at=START)
        assert UploadedModels(session).delete(record.id) == record
        assert ArtifactRows(session).unnamed([record.sha256]) == [record.sha256]
    with database.read() as session, pytest.raises(NotFound, match=record.id):
        UploadedModels(session).get(record.id)


def test_a_study_and_a_deletion_at_once_end_with_one_of_both(database: Database) -> None:
    for _ in range(8):
        with database.write() as session:
            name = add_model(session).id
        spec = {"compress": {"model": name}}
        begin = threading.Barrier(2)

        def submit(spec: dict = spec, begin: threading.Barrier = begin) -> bool:
            begin.wait()
            try:
                with database.write() as session:
                    UploadedModels(session).hold_for(spec)
                    add_study(session, spec=spec)
            except NotFound:
                return False
            return True

        def remove(name: str = name, begin: threading.Barrier = begin) -> bool:
            begin.wait()
            try:
                with database.write() as session:
                    UploadedModels(session).delete(name)
            except Conflict:
                return False
            return True

        with ThreadPoolExecutor(2) as pool:
            submitted, removed = pool.submit(submit), pool.submit(remove)
            assert submitted.result() != removed.result()


def test_bytes_stay_while_a_model_or_anything_else_names_them(database: Database) -> None:
    record = uploaded_model()
    bytes_of_both = ArtifactRecord(sha256=record.sha256, size=record.size, created_at=START)
    with database.write() as session:
        # The same checkpoint may come of two files, and may be a trial's.
        add_model(session, record)
        add_model(session, uploaded_model(sha256=record.sha256))
        study = add_study(session).id
        add_trial(session, study)
        ArtifactRows(session).link(study, 0, "checkpoint", bytes_of_both)
    with database.write() as session:
        ArtifactRows(session).unlink(study, {0: ["checkpoint"]})
        assert ArtifactRows(session).unnamed([record.sha256]) == []
    with database.write() as session:
        UploadedModels(session).delete(record.id)
        assert ArtifactRows(session).unnamed([record.sha256]) == []


def test_an_unknown_model_is_not_found_by_any_method(database: Database) -> None:
    with database.write() as session:
        for call in (UploadedModels(session).get, UploadedModels(session).delete):
            for name in ("none", "nul\x00 and \udcff"):
                with pytest.raises(NotFound):
                    call(name)
        with pytest.raises(NotFound):
            UploadedModels(session).hold_for({"compress": {"model": "none"}})
        UploadedModels(session).hold_for({"compress": None})
        assert UploadedModels(session).find("none") is None
