"""Studies: stored as they came, made once per key, paged, moved, and claimed by one coordinator."""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from storage.endings import StudyCause
from storage.engine import Database
from storage.errors import BadCursor, ClaimLost, Conflict, IdempotencyConflict, NotFound
from storage.locking import lock_study
from storage.records import Json, StudyLabels, StudyRecord, StudyState
from storage.repositories.studies import Studies
from tests.storage.records import START, add_study, after


def test_a_study_comes_back_as_it_was_stored(database: Database) -> None:
    spec: dict[str, Json] = {
        "name": "näme ☃",
        "space": {"hidden_size": {"low": 16, "step": None}, "r": 0.1, "log": True},
        "objectives": ["quality", "parameters"],
        "limits": {"learning_rate": 1e-320, "big": 2**53 + 1},
    }
    with database.write() as session:
        made = Studies(session).create(id="s1", name="näme ☃", spec=spec, at=START)
    with database.read() as session:
        stored = Studies(session).get("s1")
    assert stored == made
    assert stored == StudyRecord(
        id="s1",
        name="näme ☃",
        state=StudyState.QUEUED,
        spec=spec,
        created_at=START,
    )


def test_times_come_back_aware_and_in_utc_whatever_zone_they_came_in(database: Database) -> None:
    india = timezone(timedelta(hours=5, minutes=30))
    with database.write() as session:
        study = add_study(session, at=datetime(2026, 1, 1, 3, 0, 0, 7, tzinfo=india))
    with database.read() as session:
        created_at = Studies(session).get(study.id).created_at
    assert created_at.isoformat() == "2025-12-31T21:30:00.000007+00:00"


def test_an_unknown_study_is_not_found_by_any_method(database: Database) -> None:
    with database.write() as session:
        studies = Studies(session)
        for call in (
            lambda: studies.get("none"),
            lambda: studies.get("nul\x00 and \udcff"),
            lambda: studies.set_state("none", StudyState.RUNNING, at=START),
            lambda: studies.set_ending("none", StudyCause.CANCELLED, "us"),
            lambda: studies.set_prepared("none", {}),
            lambda: studies.set_reference_point("none", {}),
            lambda: studies.add_running_seconds("none", 1.0),
        ):
            with pytest.raises(NotFound):
                call()
        assert not studies.claim("none", owner="a", now=START, until=after(1))


def test_an_id_is_used_once(database: Database) -> None:
    with database.write() as session:
        add_study(session, id="same")
    with database.write() as session, pytest.raises(Conflict, match="same"):
        add_study(session, id="same")


def test_a_key_with_the_same_body_gives_the_first_study(database: Database) -> None:
    with database.write() as session:
        first = add_study(session, idempotency_key="k", body_digest="d")
    with database.write() as session:
        again = add_study(session, idempotency_key="k", body_digest="d")
        assert Studies(session).find_idempotent("k", "d") == first
        assert Studies(session).find_idempotent("other", "d") is None
        assert len(Studies(session).page(limit=10).items) == 1
    assert again == first


def test_a_key_with_another_body_is_refused(database: Database) -> None:
    with database.write() as session:
        add_study(session, idempotency_key="k", body_digest="d")
    with database.write() as session:
        with pytest.raises(IdempotencyConflict, match="'k'"):
            Studies(session).find_idempotent("k", "e")
        with pytest.raises(IdempotencyConflict, match="'k'"):
            add_study(session, idempotency_key="k", body_digest="e")


def test_studies_without_a_key_do_not_collide(database: Database) -> None:
    with database.write() as session:
        assert add_study(session).id != add_study(session).id


def test_requests_with_one_key_at_once_make_one_study(database: Database) -> None:
    together = threading.Barrier(6)

    def submit(index: int) -> str:
        together.wait()
        with database.write() as session:
            study = add_study(session, id=f"s{index}", idempotency_key="k", body_digest="d")
        return study.id

    with ThreadPoolExecutor(6) as pool:
        ids = set(pool.map(submit, range(6)))
    with database.read() as session:
        assert [study.id for study in Studies(session).page(limit=10).items] == list(ids)


def test_pages_go_from_the_newest_to_the_oldest_and_miss_none(database: Database) -> None:
    with database.write() as session:
        # Three share a time, so that only their ids order them.
        for index, at in enumerate([3.0, 1.0, 1.0, 1.0, 2.0, 0.0]):
            add_study(session, id=f"s{index}", at=after(at))
    seen: list[str] = []
    cursor = None
    with database.read() as session:
        for _ in range(3):
            page = Studies(session).page(limit=2, cursor=cursor)
            seen += [study.id for study in page.items]
            cursor = page.next_cursor
    assert seen == ["s0", "s4", "s3", "s2", "s1", "s5"]
    assert cursor is None


def test_a_page_holds_its_place_while_studies_are_added(database: Database) -> None:
    with database.write() as session:
        for index in range(4):
            add_study(session, id=f"s{index}", at=after(index))
        first = Studies(session).page(limit=2)
        add_study(session, id="newer", at=after(9))
        second = Studies(session).page(limit=2, cursor=first.next_cursor)
    assert [study.id for study in second.items] == ["s1", "s0"]


def test_pages_can_be_of_one_state(database: Database) -> None:
    with database.write() as session:
        for index in range(4):
            add_study(session, id=f"s{index}", at=after(index))
        for study_id in ("s0", "s1", "s3"):
            Studies(session).set_state(study_id, StudyState.RUNNING, at=START)
        first = Studies(session).page(limit=2, state=StudyState.RUNNING)
        rest = Studies(session).page(limit=2, state=StudyState.RUNNING, cursor=first.next_cursor)
    assert [study.id for study in first.items] == ["s3", "s1"]
    assert [study.id for study in rest.items] == ["s0"]


@pytest.mark.parametrize("cursor", ["", "nonsense", "é", "WzFd", "WyJ4IiwieSJd"])
def test_a_cursor_of_no_page_is_refused(database: Database, cursor: str) -> None:
    with database.read() as session, pytest.raises(BadCursor):
        Studies(session).page(limit=2, cursor=cursor)


def test_studies_in_states_come_oldest_first(database: Database) -> None:
    with database.write() as session:
        studies = Studies(session)
        for index in range(4):
            add_study(session, id=f"s{index}", at=after(-index))
        studies.set_state("s2", StudyState.RUNNING, at=START)
        studies.set_state("s3", StudyState.FINISHED, at=START)
        found = studies.in_states(StudyState.QUEUED, StudyState.RUNNING)
        ids = studies.ids_in_states(StudyState.QUEUED, StudyState.RUNNING)
    assert [study.id for study in found] == list(ids) == ["s2", "s1", "s0"]


STUDY = "s1"
_CHANGES: Sequence[Callable[[Studies], object]] = (
    lambda studies: studies.set_labels(STUDY, StudyLabels(name="another")),
    lambda studies: studies.set_labels(STUDY, StudyLabels(tags=("a",), notes="b")),
    lambda studies: studies.set_spec(STUDY, {"name": "another"}),
    lambda studies: studies.set_prepared(STUDY, {"samples": 3}),
    lambda studies: studies.set_reference_point(STUDY, {"quality": 0.0}),
    lambda studies: studies.set_state(STUDY, StudyState.RUNNING, at=START),
    lambda studies: studies.add_running_seconds(STUDY, 0.5),
    lambda studies: studies.set_ending(STUDY, StudyCause.CANCELLED, "by the user"),
    lambda studies: studies.clear_ending(STUDY),
    lambda studies: studies.set_state(STUDY, StudyState.FINISHED, at=START),
)


def test_a_studys_mark_differs_after_every_change_of_its_record(database: Database) -> None:
    with database.write() as session:
        add_study(session, id=STUDY)
    for change in _CHANGES:
        with database.write() as session:
            studies = Studies(session)
            before, mark = studies.get(STUDY), studies.marks([STUDY])
            change(studies)
        with database.read() as session:
            studies = Studies(session)
            assert studies.get(STUDY) != before
            assert studies.marks([STUDY, "nobody"]).keys() == {STUDY}
            assert studies.marks([STUDY]) != mark
    with database.read() as session:
        assert Studies(session).marks([STUDY]) == Studies(session).marks([STUDY])


def test_the_first_running_is_the_start_and_only_an_end_has_a_finish(database: Database) -> None:
    with database.write() as session:
        studies = Studies(session)
        study_id = add_study(session).id
        studies.set_state(study_id, StudyState.RUNNING, at=after(1))
        studies.set_state(study_id, StudyState.PAUSED, at=after(2), detail="by the user")
        paused = studies.get(study_id)
        studies.set_state(study_id, StudyState.RUNNING, at=after(3))
        running = studies.get(study_id)
        cause = StudyCause.BUDGET
        studies.set_state(study_id, StudyState.FINISHED, at=after(4), cause=cause, detail="trials")
        finished = studies.get(study_id)
        studies.set_state(study_id, StudyState.RUNNING, at=after(5))
        reopened = studies.get(study_id)
    assert (paused.state, paused.state_reason) == (StudyState.PAUSED, "by the user")
    assert (running.started_at, running.state_reason) == (after(1), None)
    assert (finished.finished_at, finished.state_reason) == (after(4), "budget: trials")
    assert reopened == replace(running, state=StudyState.RUNNING)


def test_only_the_first_ending_is_kept(database: Database) -> None:
    with database.write() as session:
        study_id = add_study(session).id
        assert Studies(session).set_ending(study_id, StudyCause.BUDGET, "trials")
        assert not Studies(session).set_ending(study_id, StudyCause.CANCELLED, "us")
        assert Studies(session).get(study_id).ending == "budget: trials"


def test_what_is_found_out_about_a_study_is_kept(database: Database) -> None:
    with database.write() as session:
        studies = Studies(session)
        study_id = add_study(session).id
        studies.set_prepared(study_id, {"baseline": 0.1, "files": {"train": "ab"}})
        studies.set_reference_point(study_id, {"quality": 0.1, "parameters": 4.0})
        studies.add_running_seconds(study_id, 1.5)
        studies.add_running_seconds(study_id, 2.0)
        study = studies.get(study_id)
    assert study.prepared == {"baseline": 0.1, "files": {"train": "ab"}}
    assert study.reference_point == {"quality": 0.1, "parameters": 4.0}
    assert study.running_seconds == 3.5


def test_a_claim_holds_until_it_ends_is_renewed_by_its_owner_and_can_be_released(
    database: Database,
) -> None:
    with database.write() as session:
        studies = Studies(session)
        study_id = add_study(session).id
        assert studies.claim(study_id, owner="a", now=after(0), until=after(10))
        assert not studies.claim(study_id, owner="b", now=after(9), until=after(19))
        assert studies.claim(study_id, owner="a", now=after(9), until=after(20))
        assert not studies.claim(study_id, owner="b", now=after(19), until=after(29))
        assert studies.claim(study_id, owner="b", now=after(20), until=after(30))
        studies.release(study_id, "a")
        assert not studies.claim(study_id, owner="a", now=after(21), until=after(31))
        studies.release(study_id, "b")
        assert studies.claim(study_id, owner="a", now=after(21), until=after(31))


def test_claims_are_renewed_at_once_and_only_those_of_their_owner(database: Database) -> None:
    with database.write() as session:
        studies = Studies(session)
        ours, theirs, free, other = (add_study(session).id for _ in range(4))
        for study_id, owner in ((ours, "a"), (other, "a"), (theirs, "b")):
            assert studies.claim(study_id, owner=owner, now=START, until=after(10))
        renewed = studies.renew({ours, theirs, free, "none"}, owner="a", until=after(30))
        assert renewed == {ours}
        assert studies.renew((), owner="a", until=after(30)) == set()
        claims = studies.claims(other_than="nobody")
    assert claims == {ours: after(30), theirs: after(10), other: after(10)}


@pytest.mark.parametrize("database_url", ["postgresql"], indirect=True)
def test_a_claim_whose_row_another_transaction_holds_is_left_for_the_next_time(
    database: Database, database_url: str
) -> None:
    with database.write() as session:
        ours, held = (add_study(session).id for _ in range(2))
        for study_id in (ours, held):
            assert Studies(session).claim(study_id, owner="a", now=START, until=after(10))
    another = Database(database_url)
    with database.write() as session, another.write() as beside:
        lock_study(session, held)
        assert Studies(beside).renew({ours, held}, owner="a", until=after(30)) == {ours}
    another.dispose()


def test_a_claim_that_was_seen_to_be_stale_is_taken_only_if_it_was_not_renewed(
    database: Database,
) -> None:
    """Whoever takes over names the time that it saw: no clock of the two is compared."""
    with database.write() as session:
        studies = Studies(session)
        study_id = add_study(session).id
        assert studies.claim(study_id, owner="a", now=START, until=after(10))
        assert studies.claims(other_than="a") == {}
        seen = studies.claims(other_than="b")[study_id]
        assert seen == after(10)
        assert studies.claim(study_id, owner="a", now=START, until=after(11))
        assert not studies.claim(study_id, owner="b", now=seen, until=after(20))
        seen = studies.claims(other_than="b")[study_id]
        assert studies.claim(study_id, owner="b", now=seen, until=after(5))
        assert not studies.claim(study_id, owner="a", now=START, until=after(30))
        studies.release(study_id, "b")
        assert studies.claims(other_than="a") == {}


def test_only_the_owner_of_a_claim_can_prove_it(database: Database) -> None:
    with database.write() as session:
        studies = Studies(session)
        study_id = add_study(session).id
        with pytest.raises(ClaimLost, match="'a'"):
            studies.prove_claim(study_id, "a")
        studies.claim(study_id, owner="a", now=START, until=after(10))
        studies.prove_claim(study_id, "a")
        studies.claim(study_id, owner="b", now=after(10), until=after(20))
        studies.prove_claim(study_id, "b")
        with pytest.raises(ClaimLost, match="'a'"):
            studies.prove_claim(study_id, "a")


def test_a_claim_that_was_proved_is_not_taken_until_the_transaction_ends(
    database: Database,
) -> None:
    with database.write() as session:
        study_id = add_study(session).id
        Studies(session).claim(study_id, owner="a", now=START, until=after(10))
    taken = threading.Event()

    def take() -> bool:
        with database.write() as session:
            done = Studies(session).claim(study_id, owner="b", now=after(10), until=after(20))
        taken.set()
        return done

    with ThreadPoolExecutor(1) as pool:
        with database.write() as session:
            Studies(session).prove_claim(study_id, "a")
            taking = pool.submit(take)
            assert not taken.wait(0.2)
        assert taking.result(300)


def test_of_coordinators_that_claim_at_once_one_has_the_study(database: Database) -> None:
    with database.write() as session:
        study_id = add_study(session).id
    together = threading.Barrier(6)

    def claim(owner: str) -> bool:
        together.wait()
        with database.write() as session:
            return Studies(session).claim(study_id, owner=owner, now=START, until=after(9))

    with ThreadPoolExecutor(6) as pool:
        assert sorted(pool.map(claim, "abcdef")) == [False] * 5 + [True]


def test_labels_change_one_by_one(database: Database) -> None:
    with database.write() as session:
        study = add_study(session, name="first")
        assert (study.tags, study.notes) == ((), "")
        studies = Studies(session)
        studies.set_labels(study.id, StudyLabels(name="second", tags=("a, b", "ü")))
        studies.set_labels(study.id, StudyLabels(notes="seen"))
        found = studies.get(study.id)
    assert (found.name, found.tags, found.notes) == ("second", ("a, b", "ü"), "seen")
    assert found.spec == study.spec
    with pytest.raises(NotFound), database.write() as session:
        Studies(session).set_labels("none", StudyLabels(notes="x"))


FOUND: list[tuple[dict[str, Any], list[str]]] = [
    ({"prefix": "ab"}, ["abd", "abc"]),
    ({"prefix": "AB"}, []),
    ({"prefix": "a_"}, []),
    ({"prefix": "nul\x00"}, []),
    ({"name": "Rows"}, ["abc"]),
    ({"name": "rows"}, []),
    ({"tag": "100 %"}, ["abd"]),
    ({"tag": "100"}, []),
    ({"text": "ROWS"}, ["cde", "abc"]),
    ({"text": "%"}, ["abd"]),
    ({"text": "wrong DATA"}, ["abd"]),
    ({"text": "ABD"}, ["abd"]),
    ({"text": "rows", "prefix": "a"}, ["abc"]),
    *(({by: lost}, []) for by in ("tag", "text") for lost in ("nul\x00", "half \ud800")),
]


def test_studies_are_found_by_their_labels_and_ids(database: Database) -> None:
    with database.write() as session:
        studies = Studies(session)
        for seconds, (study, name) in enumerate({"abc": "Rows", "abd": "b", "cde": "c"}.items()):
            add_study(session, id=study, name=name, at=after(seconds))
        studies.set_labels("abd", StudyLabels(tags=("100 %",), notes="wrong data"))
        studies.set_labels("cde", StudyLabels(tags=("x", "all rows")))
    with database.read() as session:
        studies = Studies(session)
        for asked, found in FOUND:
            page = studies.page(limit=5, **asked)
            assert [study.id for study in page.items] == found, asked
        first = studies.page(limit=1, text="rows")
        rest = studies.page(limit=5, cursor=first.next_cursor, text="rows")
        assert [study.id for study in (*first.items, *rest.items)] == ["cde", "abc"]


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_letters_beyond_ascii_are_found_in_either_case(database: Database) -> None:
    """PostgreSQL knows those of its database's locale."""
    with database.write() as session:
        add_study(session, id="abc", name="ÜBUNG")
        Studies(session).set_labels("abc", StudyLabels(tags=("Études",)))
    with database.read() as session:
        for text in ("übung", "Übung", "éTUDES"):
            page = Studies(session).page(limit=5, text=text)
            assert [study.id for study in page.items] == ["abc"], text


def test_conditions_stay_within_the_tenant(database: Database) -> None:
    with database.of("us").write() as session:
        add_study(session, id="ab-ours")
        Studies(session).set_labels("ab-ours", StudyLabels(tags=("x",)))
    for tenant, found in (("us", ["ab-ours"]), ("them", [])):
        with database.of(tenant).read() as session:
            asked: dict[str, Any]
            for asked in ({"prefix": "ab"}, {"tag": "x"}, {"text": "x"}, {"name": "a study"}):
                page = Studies(session).page(limit=5, **asked)
                assert [study.id for study in page.items] == found
