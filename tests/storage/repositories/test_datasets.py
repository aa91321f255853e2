"""Data sets: stored once, paged, kept while used, and their artifacts while anything names them."""

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from sqlalchemy import func, select
from sqlalchemy.orm import Session

from storage.engine import Database
from storage.errors import BadCursor, Conflict, NotFound
from storage.records import ArtifactRecord, StudyState
from storage.repositories.artifact_rows import ArtifactRows
from storage.repositories.datasets import Datasets
from storage.repositories.studies import Studies
from storage.tables import ArtifactRow
from tests.storage.records import START, add_dataset, add_study, add_trial, after, dataset, digest


def artifacts_in(session: Session) -> int:
    return session.scalar(select(func.count()).select_from(ArtifactRow)) or 0


def test_a_dataset_comes_back_as_it_was_stored(database: Database) -> None:
    record = dataset(test_sha256=digest("test"))
    with database.write() as session:
        assert add_dataset(session, record) == record
    with database.read() as session:
        assert Datasets(session).get(record.id) == record
        assert Datasets(session).find(record.fingerprint) == record
        assert artifacts_in(session) == 3


def test_the_same_files_with_the_same_options_are_one_dataset(database: Database) -> None:
    first = dataset()
    with database.write() as session:
        add_dataset(session, first)
    with database.write() as session:
        again = add_dataset(session, replace(first, id="another", name="another name"))
        assert again == first
        assert artifacts_in(session) == 2
    with database.read() as session, pytest.raises(NotFound):
        Datasets(session).get("another")


def test_one_of_many_at_once_is_stored(database: Database) -> None:
    record = dataset()
    together = threading.Barrier(4)

    def race(number: int) -> str:
        together.wait(300)
        with database.write() as session:
            return add_dataset(session, replace(record, id=f"racer-{number}")).id

    with ThreadPoolExecutor(4) as pool:
        ids = set(pool.map(race, range(4)))
    assert len(ids) == 1
    with database.read() as session:
        assert [found.id for found in Datasets(session).page(limit=10).items] == list(ids)


def test_paging_visits_every_dataset_once_newest_first(database: Database) -> None:
    # Two share a time, so that the id has to tell them apart.
    made = [dataset(created_at=after(number // 2)) for number in range(7)]
    with database.write() as session:
        for record in made:
            add_dataset(session, record)
    seen: list[str] = []
    cursor = None
    with database.read() as session:
        for _ in range(5):
            page = Datasets(session).page(limit=3, cursor=cursor)
            seen += [record.id for record in page.items]
            cursor = page.next_cursor
            if cursor is None:
                break
        expected = sorted(made, key=lambda record: (record.created_at, record.id), reverse=True)
        assert seen == [record.id for record in expected]
        with pytest.raises(BadCursor):
            Datasets(session).page(limit=3, cursor="nonsense")
        with pytest.raises(ValueError, match="limit 0"):
            Datasets(session).page(limit=0)


@pytest.mark.parametrize("state", [state for state in StudyState if not state.has_ended])
def test_a_dataset_in_use_stays_until_the_study_has_ended(
    database: Database, state: StudyState
) -> None:
    record = dataset()
    with database.write() as session:
        add_dataset(session, record)
        study = add_study(session, spec={"task": {"kind": "dataset", "id": record.id}}).id
        add_study(session, spec={"task": {"kind": "digits"}})
        add_study(session, spec={"task": {"kind": "dataset", "id": "another"}})
        Studies(session).set_state(study, state, at=START)
    with database.write() as session, pytest.raises(Conflict, match=f"{record.id}.*{study}"):
        Datasets(session).delete(record.id)
    with database.write() as session:
        assert Datasets(session).used_by(record.id) == [study]
        Studies(session).set_state(study, StudyState.FINISHED, at=START)
        assert Datasets(session).delete(record.id) == record
    with database.read() as session, pytest.raises(NotFound, match=record.id):
        Datasets(session).get(record.id)


def test_a_study_and_a_deletion_at_once_end_with_one_of_both(database: Database) -> None:
    for _ in range(8):
        record = dataset()
        with database.write() as session:
            add_dataset(session, record)
        task = {"task": {"kind": "dataset", "id": record.id}}
        begin = threading.Barrier(2)

        def submit(task: dict = task, begin: threading.Barrier = begin) -> bool:
            begin.wait()
            try:
                with database.write() as session:
                    Datasets(session).hold_for(task)
                    add_study(session, spec=task)
            except NotFound:
                return False
            return True

        def remove(name: str = record.id, begin: threading.Barrier = begin) -> bool:
            begin.wait()
            try:
                with database.write() as session:
                    Datasets(session).delete(name)
            except Conflict:
                return False
            return True

        with ThreadPoolExecutor(2) as pool:
            submitted, removed = pool.submit(submit), pool.submit(remove)
            assert submitted.result() != removed.result()


def test_artifacts_stay_while_anything_names_them(database: Database) -> None:
    first = dataset(test_sha256=digest("test"))
    # Read in another way, the same file gives another container.
    second = dataset(sha256=first.sha256)
    with database.write() as session:
        add_dataset(session, first)
        add_dataset(session, second)
        study = add_study(session).id
        add_trial(session, study)
        kept = ArtifactRecord(sha256=digest("test"), size=7, created_at=START)
        ArtifactRows(session).link(study, 0, "checkpoint", kept)
    with database.write() as session:
        Datasets(session).delete(first.id)
        assert ArtifactRows(session).unnamed(first.digests) == [first.container_sha256]
    with database.write() as session:
        Datasets(session).delete(second.id)
        assert ArtifactRows(session).unnamed(second.digests) == list(second.digests)
        assert list(ArtifactRows(session).of_trial(study, 0)) == ["checkpoint"]


def test_whoever_removes_bytes_and_whoever_names_them_wait_for_each_other(
    database: Database,
) -> None:
    record = dataset()
    order: list[str] = []
    holds, waits = threading.Event(), threading.Event()

    def remover() -> None:
        with database.write() as session:
            ArtifactRows(session).lock_names()
            holds.set()
            waits.wait(300)
            # The other one has all the time it needs to overtake, if it could.
            threading.Event().wait(0.3)
            order.append("removed")

    def namer() -> None:
        holds.wait(300)
        waits.set()
        with database.write() as session:
            ArtifactRows(session).lock_names()
            order.append("named")
            add_dataset(session, record)

    with ThreadPoolExecutor(2) as pool:
        for done in (pool.submit(remover), pool.submit(namer)):
            done.result()
    assert order == ["removed", "named"]


def test_an_unknown_dataset_is_not_found_by_any_method(database: Database) -> None:
    with database.write() as session:
        for call in (Datasets(session).get, Datasets(session).delete):
            for name in ("none", "nul\x00 and \udcff"):
                with pytest.raises(NotFound):
                    call(name)
        assert Datasets(session).find("none") is None
