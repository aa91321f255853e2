"""Answers that are given out again: only while nothing has changed, whoever changed it."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import Any

import pytest
from starlette.testclient import TestClient

from service.http.kept_answers import KeptAnswer, KeptAnswers
from storage.engine import Database
from storage.records import TrialState
from storage.repositories.studies import Studies
from tests.service.site import Site


@pytest.fixture
def study_id(site: Site) -> str:
    study = site.study()
    site.run(study)
    for number in range(3):
        site.trial(study, number, quality=0.5 + number / 10, throughput=50.0)
    return study.id


PATHS = ("", "/front", "/trials", "/trials/1", "/trials/1/metrics", "/importance", "/hypervolume")


def routed(client: TestClient) -> list[str]:
    """The paths of requests that a route answers from now on."""
    seen: list[str] = []
    app: Any = client.app
    kept: KeptAnswers = app.state.kept
    put = kept.put

    def noted(key: Any, answer: KeptAnswer) -> None:
        seen.append(key[1])
        put(key, answer)

    kept.put = noted  # type: ignore[method-assign]
    return seen


@pytest.mark.parametrize("path", PATHS)
def test_an_answer_is_made_once_until_something_changes(
    client: TestClient, site: Site, study_id: str, path: str
) -> None:
    made = routed(client)
    place = f"/v1/studies/{study_id}{path}"
    first = client.get(place)
    again = client.get(place)
    assert made == [place]
    assert (again.status_code, again.content) == (200, first.content)
    named = set(first.headers) - {"x-request-id", "date"}
    assert {name: again.headers[name] for name in named} == {
        name: first.headers[name] for name in named
    }
    assert again.headers["X-Request-ID"] != first.headers["X-Request-ID"]
    # Another process commits something, whatever it is.
    other = Database(site.settings.database_url)
    with other.write() as session:
        Studies(session).add_running_seconds(study_id, 1.0)
    other.dispose()
    client.get(place)
    assert made == [place, place]


def test_a_list_is_never_older_than_its_question(client: TestClient, site: Site) -> None:
    for count in range(1, 5):
        study = site.study()
        items = client.get("/v1/studies").json()["items"]
        assert items[0]["id"] == study.id
        assert len(items) == count
        with site.database.write() as session:
            Studies(session).add_running_seconds(study.id, float(count))
        (first, *_) = client.get("/v1/studies").json()["items"]
        assert first["progress"]["wall_seconds"] == count


@pytest.mark.parametrize("path", PATHS)
def test_who_has_an_answer_is_told_that_it_holds(
    client: TestClient, site: Site, study_id: str, path: str
) -> None:
    place = f"/v1/studies/{study_id}{path}"
    tag = client.get(place).headers["ETag"]
    for shown in (tag, f"W/{tag}", f'"other", {tag}'):
        answer = client.get(place, headers={"If-None-Match": shown})
        assert (answer.status_code, answer.content) == (304, b"")
        assert answer.headers["ETag"] == tag
        assert "content-length" not in answer.headers
    assert client.get(place, headers={"If-None-Match": '"other"'}).status_code == 200
    assert client.head(place).headers["ETag"] == tag
    study = site.study()
    # The bytes are the same, though they were made anew.
    assert study.id != study_id
    assert client.get(place, headers={"If-None-Match": tag}).status_code == 304


def test_what_follows_from_the_clock_is_made_anew(
    client: TestClient, site: Site, study_id: str
) -> None:
    with site.database.read() as session:
        study = Studies(session).get(study_id)
    site.trial(study, 3, state=TrialState.RUNNING)
    site.lease(study, 3)
    made = routed(client)
    place = f"/v1/studies/{study_id}"
    hours = [client.get(place).json()["progress"]["device_hours"] for _ in range(2)]
    assert 0 < hours[0] < hours[1]
    assert made == []


def test_queries_and_refusals_are_answers_of_their_own(client: TestClient, study_id: str) -> None:
    place = f"/v1/studies/{study_id}/trials"
    pages = [client.get(f"{place}?limit={limit}").json()["items"] for limit in (1, 2, 1, 2)]
    assert [len(page) for page in pages] == [1, 2, 1, 2]
    for _ in range(2):
        assert client.get(f"{place}?limit=0").status_code == 422
        assert client.get(f"{place}/99").status_code == 404
        csv = client.get(f"{place}?format=csv")
        assert csv.headers["content-type"].startswith("text/csv")


def test_many_who_ask_at_once_after_a_change_have_one_answer_made(
    client: TestClient, site: Site, study_id: str
) -> None:
    place = f"/v1/studies/{study_id}/front"
    client.get(place)
    with site.database.read() as session:
        study = Studies(session).get(study_id)
    site.trial(study, 3, quality=0.99, throughput=99.0)
    made = routed(client)
    with ThreadPoolExecutor(20) as threads:
        found = list(threads.map(lambda _: client.get(place).json(), range(20)))
    assert all(3 in [point["trial"] for point in front["points"]] for front in found)
    assert len(made) < 20


class _Told:
    """A database that says what a test says."""

    waits = False

    def __init__(self) -> None:
        self.state: int | None = 1

    def look(self) -> int | None:
        return self.state

    def close(self) -> None:
        pass


def answer(state: object, body: bytes) -> KeptAnswer:
    return KeptAnswer(state=state, headers=(), body=body, tag='"t"', route=None, path_params={})


def test_memory_is_bounded_by_what_was_asked_for_last() -> None:
    kept = KeptAnswers(_Told(), most_bytes=10_000)
    for number in range(5):
        kept.put(number, answer(1, b"x" * 2000))
        assert kept.get(0, 1) is not None or number >= 3
    assert [number for number in range(5) if kept.knows(number)] != [0, 1, 2, 3, 4]
    assert kept.knows(4)
    kept.put("huge", answer(1, bytes(5 << 20)))
    assert not kept.knows("huge")


def test_nothing_is_given_out_where_the_database_does_not_tell() -> None:
    told = _Told()
    kept = KeptAnswers(told)
    kept.put("key", answer(1, b"body"))
    assert kept.get("key", asyncio.run(kept.state())) is not None
    told.state = None
    assert kept.get("key", asyncio.run(kept.state())) is None


def test_any_commit_of_another_connection_is_seen(database: Database) -> None:
    changes = database.changes()
    before = changes.look()
    assert before is not None
    assert changes.look() == before
    with database.write() as session:
        Studies(session).create(id="s", name="s", spec={}, at=datetime.now(UTC))
    after = changes.look()
    assert after != before
    with database.read() as session:
        Studies(session).get("s")
    assert changes.look() == after
    changes.close()
    # Another connection counts otherwise: nothing that was known holds.
    assert changes.look() != after or not database.is_sqlite
    changes.close()
