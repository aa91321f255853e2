"""Data sets and models: stored once, paged, kept while used, and their bytes while named."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

import pytest
from sqlalchemy import func, select
from sqlalchemy.orm import Session

from storage.engine import Database
from storage.errors import BadCursor, Conflict, NotFound
from storage.records import ArtifactRecord, StudyState
from storage.repositories.artifact_rows import ArtifactRows
from storage.repositories.studies import Studies
from storage.repositories.uploads import Datasets, UploadedModels
from storage.tables import ArtifactRow
from tests.storage.records import (
    START,
    add_dataset,
    add_model,
    add_study,
    add_trial,
    after,
    dataset,
    digest,
    uploaded_model,
)


@dataclass(frozen=True)
class Kind:
    """One kind of upload: its repository, how one is made and added, and who names it."""

    rows: Callable[[Session], Any]
    made: Callable[..., Any]
    add: Callable[..., Any]
    naming: Callable[[str], dict]
    """A study's document that names the upload of this id."""
    naming_none: dict


DATASETS = Kind(
    Datasets,
    dataset,
    add_dataset,
    lambda name: {"task": {"kind": "dataset", "id": name}},
    {"task": {"kind": "digits"}},
)
MODELS = Kind(
    UploadedModels,
    uploaded_model,
    add_model,
    lambda name: {"compress": {"model": name}},
    {"compress": None},
)


@pytest.fixture(params=[DATASETS, MODELS], ids=["datasets", "models"])
def kind(request: pytest.FixtureRequest) -> Kind:
    return request.param


def artifacts_in(session: Session) -> int:
    return session.scalar(select(func.count()).select_from(ArtifactRow)) or 0


@pytest.mark.parametrize(
    ("kind", "record"),
    [(DATASETS, dataset(test_sha256=digest("test"))), (MODELS, uploaded_model())],
    ids=["datasets", "models"],
)
def test_an_upload_comes_back_as_it_was_stored(database: Database, kind: Kind, record: Any) -> None:
    with database.write() as session:
        assert kind.add(session, record) == record
    with database.read() as session:
        assert kind.rows(session).get(record.id) == record
        assert kind.rows(session).find(record.fingerprint) == record
        assert sorted(ArtifactRows(session).digests()) == sorted(record.digests)
        assert artifacts_in(session) == (3 if kind is DATASETS else 1)


def test_the_same_files_with_the_same_options_are_one_upload(
    database: Database, kind: Kind
) -> None:
    first = kind.made()
    with database.write() as session:
        kind.add(session, first)
    with database.write() as session:
        again = kind.add(session, replace(first, id="another", name="another name"))
        assert again == first
        assert artifacts_in(session) == (2 if kind is DATASETS else 1)
    with database.read() as session, pytest.raises(NotFound):
        kind.rows(session).get("another")


def test_one_of_many_at_once_is_stored(database: Database, kind: Kind) -> None:
    record = kind.made()
    together = threading.Barrier(4)

    def race(number: int) -> str:
        together.wait(300)
        with database.write() as session:
            return kind.add(session, replace(record, id=f"racer-{number}", name="other")).id

    with ThreadPoolExecutor(4) as pool:
        ids = set(pool.map(race, range(4)))
    assert len(ids) == 1
    with database.read() as session:
        assert [found.id for found in kind.rows(session).page(limit=10).items] == list(ids)


def test_paging_visits_every_upload_once_newest_first(database: Database, kind: Kind) -> None:
    # Two share a time, so that the id has to tell them apart.
    made = [kind.made(created_at=after(number // 2)) for number in range(7)]
    with database.write() as session:
        for record in made:
            kind.add(session, record)
    seen: list[Any] = []
    cursor = None
    with database.read() as session:
        for _ in range(5):
            page = kind.rows(session).page(limit=3, cursor=cursor)
            seen += page.items
            cursor = page.next_cursor
            if cursor is None:
                break
        expected = sorted(made, key=lambda record: (record.created_at, record.id), reverse=True)
        assert seen == expected
        assert cursor is None
        with pytest.raises(BadCursor):
            kind.rows(session).page(limit=3, cursor="nonsense")
        with pytest.raises(ValueError, match="limit 0"):
            kind.rows(session).page(limit=0)


@pytest.mark.parametrize("state", [state for state in StudyState if not state.has_ended])
def test_an_upload_in_use_stays_until_the_study_has_ended(
    database: Database, kind: Kind, state: StudyState
) -> None:
    record = kind.made()
    with database.write() as session:
        kind.add(session, record)
        study = add_study(session, spec=kind.naming(record.id)).id
        add_study(session, spec=kind.naming_none)
        add_study(session, spec=kind.naming("another"))
        Studies(session).set_state(study, state, at=START)
    with database.write() as session, pytest.raises(Conflict, match=f"{record.id}.*{study}"):
        kind.rows(session).delete(record.id)
    with database.write() as session:
        assert kind.rows(session).used_by(record.id) == [study]
        Studies(session).set_state(study, StudyState.FINISHED, at=START)
        assert kind.rows(session).delete(record.id) == record
        assert ArtifactRows(session).unnamed(record.digests) == list(record.digests)
    with database.read() as session, pytest.raises(NotFound, match=record.id):
        kind.rows(session).get(record.id)


def test_a_study_and_a_deletion_at_once_end_with_one_of_both(
    database: Database, kind: Kind
) -> None:
    for _ in range(8):
        with database.write() as session:
            name = kind.add(session).id
        spec = kind.naming(name)
        begin = threading.Barrier(2)

        def submit(spec: dict = spec, begin: threading.Barrier = begin) -> bool:
            begin.wait()
            try:
                with database.write() as session:
                    kind.rows(session).hold_for(spec)
                    add_study(session, spec=spec)
            except NotFound:
                return False
            return True

        def remove(name: str = name, begin: threading.Barrier = begin) -> bool:
            begin.wait()
            try:
                with database.write() as session:
                    kind.rows(session).delete(name)
            except Conflict:
                return False
            return True

        with ThreadPoolExecutor(2) as pool:
            submitted, removed = pool.submit(submit), pool.submit(remove)
            assert submitted.result() != removed.result()


def test_artifacts_stay_while_a_data_set_or_anything_else_names_them(database: Database) -> None:
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


def test_an_unknown_upload_is_not_found_by_any_method(database: Database, kind: Kind) -> None:
    with database.write() as session:
        for call in (kind.rows(session).get, kind.rows(session).delete):
            for name in ("none", "nul\x00 and \udcff"):
                with pytest.raises(NotFound):
                    call(name)
        with pytest.raises(NotFound):
            kind.rows(session).hold_for(kind.naming("none"))
        kind.rows(session).hold_for(kind.naming_none)
        assert kind.rows(session).find("none") is None
