import asyncio
import json
import signal
import threading
from collections.abc import Iterator
from contextlib import aclosing, contextmanager
from dataclasses import dataclass
from typing import Any

import httpx2
import pytest
from sqlalchemy import Engine, event
from starlette.testclient import TestClient

from service.api.events.poller import EventPoller
from service.api.events.shared_looks import SharedLooks
from service.settings import QuotaSettings
from storage.records import StudyState, TrialState
from tests.service.processes import log_of, running_api
from tests.service.site import Site

Event = tuple[int, str, dict[str, Any]]


def events_in(lines: Iterator[str]) -> Iterator[Event]:
    """Parse a stream as the standard says, independently of the library that wrote it."""
    fields: dict[str, str] = {}
    for line in lines:
        if line.startswith(":"):
            continue
        if line:
            name, _, value = line.partition(":")
            fields[name] = value.removeprefix(" ")
        elif fields:
            yield int(fields["id"]), fields["event"], json.loads(fields["data"])
            fields = {}


@contextmanager
def stream(url: str, study_id: str, *, after: int | None = None) -> Iterator[Iterator[Event]]:
    headers = {} if after is None else {"Last-Event-ID": str(after)}
    path = f"{url}/v1/studies/{study_id}/events"
    with httpx2.stream("GET", path, headers=headers, timeout=300) as answer:
        assert answer.status_code == 200
        assert answer.headers["content-type"].startswith("text/event-stream")
        yield events_in(answer.iter_lines())


def test_an_ended_study_tells_all_of_its_events_and_the_stream_ends(
    client: TestClient, site: Site
) -> None:
    study = site.study()
    site.run(study)
    site.trial(study, 0, quality=0.5)
    site.finish(study)
    answer = client.get(f"/v1/studies/{study.id}/events")
    events = list(events_in(iter(answer.text.split("\n"))))
    assert [number for number, _, _ in events] == [1, 2, 3, 4]
    assert [kind for _, kind, _ in events] == ["study", "study", "trial", "study"]
    assert [data["state"] for _, _, data in events] == ["queued", "running", "complete", "finished"]
    assert events[2][2]["trial"] == 0
    assert all(data["at"].endswith(("Z", "+00:00")) for _, _, data in events)


@pytest.mark.parametrize("after", range(4))
def test_a_stream_goes_on_after_any_event(client: TestClient, site: Site, after: int) -> None:
    study = site.study()
    site.run(study)
    site.event(study, file="x")
    site.finish(study)
    answer = client.get(f"/v1/studies/{study.id}/events", headers={"Last-Event-ID": str(after)})
    numbers = [number for number, _, _ in events_in(iter(answer.text.split("\n")))]
    assert numbers == list(range(after + 1, 5))


@pytest.mark.parametrize("after", [0, 2])
def test_a_plain_request_is_answered_as_any_other_is(
    client: TestClient, site: Site, after: int
) -> None:
    study = site.study()
    site.trial(study, 0, quality=0.5)
    site.finish(study)
    path = f"/v1/studies/{study.id}/events"
    # What the route alone understands: a plus, and a word that nobody asked for.
    for other in (f"{path}?after=%2B{after}", f"{path}?after={after}&x=1"):
        plain, by_route = client.get(f"{path}?after={after}"), client.get(other)
        assert (plain.status_code, plain.content) == (by_route.status_code, by_route.content)
        heads = [
            {name: value for name, value in answer.headers.items() if name != "x-request-id"}
            for answer in (plain, by_route)
        ]
        assert heads[0] == heads[1]
    assert 'route="/v1/studies/{study_id}/events"' in client.get("/metrics").text


def test_a_stream_of_a_study_that_is_not_there_is_refused(client: TestClient) -> None:
    assert client.get("/v1/studies/gone/events").status_code == 404


def test_after_the_last_event_of_an_ended_study_there_is_nothing_to_wait_for(
    client: TestClient, site: Site
) -> None:
    study = site.study()
    site.finish(study, StudyState.CANCELLED)
    answer = client.get(f"/v1/studies/{study.id}/events", headers={"Last-Event-ID": "2"})
    assert (answer.status_code, answer.content) == (204, b"")


@pytest.mark.parametrize("place", ["2", "-1", "x", "1.5"])
def test_a_place_that_the_study_has_not_got_is_refused(
    client: TestClient, site: Site, place: str
) -> None:
    study = site.study()
    answer = client.get(f"/v1/studies/{study.id}/events", headers={"Last-Event-ID": place})
    assert answer.status_code == 422
    assert answer.json()["errors"][0]["path"] == "Last-Event-ID"


@dataclass(frozen=True)
class Served:
    """A data directory and an API process over it, which starts only once for all tests."""

    site: Site
    url: str


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    unlimited = QuotaSettings(streams=None, streams_per_key=None)
    site = Site(tmp_path_factory.mktemp("served"), quotas=unlimited)
    with running_api(site.settings) as api:
        yield Served(site, api.url)
    site.close()


def test_streams_that_break_and_resume_lose_and_double_nothing(served: Served) -> None:
    """Four listeners, each breaking off at its own rhythm, while events are written."""
    site = served.site
    study = site.study()
    site.run(study)
    total = 120

    def write() -> None:
        for number in range(total):
            site.event(study, number=number)
        site.finish(study)

    def listen(rhythm: int, seen: list[Event]) -> None:
        while not seen or seen[-1][2].get("state") != "finished":
            with stream(served.url, study.id, after=seen[-1][0] if seen else None) as events:
                for count, heard in enumerate(events, start=1):
                    seen.append(heard)
                    if count == rhythm:
                        break

    heard: list[list[Event]] = [[] for _ in range(4)]
    threads = [
        threading.Thread(target=listen, args=(rhythm, seen))
        for rhythm, seen in zip((1000, 7, 23, 50), heard, strict=True)
    ]
    threads.append(threading.Thread(target=write))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(600)
    for seen in heard:
        assert [number for number, _, _ in seen] == list(range(1, total + 4))
        told = [data["number"] for _, kind, data in seen if kind == "download"]
        assert told == list(range(total))
    # Listeners come and go; that is worth no word in the log.
    assert "Traceback" not in log_of(site.settings).read_text()


def test_a_stream_waits_for_events_that_are_yet_to_come(served: Served) -> None:
    site = served.site
    study = site.study()
    with stream(served.url, study.id) as events:
        assert next(events)[2]["state"] == "queued"
        site.run(study)
        assert next(events)[2]["state"] == "running"
        site.trial(study, 0, state=TrialState.STOPPED, reason="budget")
        assert next(events)[2]["reason"] == "budget"
        site.finish(study)
        assert next(events)[2]["state"] == "finished"
        assert list(events) == []


def test_the_head_of_a_stream_that_goes_on_is_answered_at_once(served: Served) -> None:
    study = served.site.study()
    answer = httpx2.head(f"{served.url}/v1/studies/{study.id}/events", timeout=300)
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/event-stream")


def test_sigterm_with_an_open_stream_ends_within_the_grace_time(site: Site) -> None:
    study = site.study()
    with running_api(site.settings) as api, stream(api.url, study.id) as events:
        next(events)
        seconds = api.terminate()
        assert seconds < site.settings.shutdown_grace_seconds
        # It ended in order and then, as is the custom, by the signal that asked for it.
        assert api.process.returncode == -signal.SIGTERM
        # The stream was ended in order, so a client can tell that it may come again.
        assert list(events) == []


@contextmanager
def statements() -> Iterator[list[str]]:
    """Every statement that this process sends to any database meanwhile."""
    sent: list[str] = []

    def note(_connection: Any, _cursor: Any, statement: str, *_rest: Any) -> None:
        sent.append(statement)

    event.listen(Engine, "before_cursor_execute", note)
    try:
        yield sent
    finally:
        event.remove(Engine, "before_cursor_execute", note)


def test_a_listener_that_went_away_costs_no_more_looks(site: Site) -> None:
    study = site.study()

    async def come_and_go() -> None:
        poller = EventPoller(site.database, interval=0.005)
        await poller.start()
        async with aclosing(poller.listen(study.id, after=0)) as events:
            assert (await anext(events)).number == 1
        await asyncio.sleep(0.05)
        with statements() as sent:
            await asyncio.sleep(0.1)
        assert sent == []
        await poller.stop()

    asyncio.run(come_and_go())


def test_far_more_events_than_are_kept_reach_a_slow_listener(site: Site) -> None:
    study = site.study()

    async def listen() -> list[int]:
        poller = EventPoller(site.database, interval=0.005)
        await poller.start()
        seen: list[int] = []
        async for heard in poller.listen(study.id, after=0):
            seen.append(heard.number)
            if heard.number == 1:
                # While this listener sleeps over its first event, more come than memory keeps.
                await asyncio.to_thread(write_many)
        await poller.stop()
        return seen

    def write_many() -> None:
        for number in range(1200):
            site.event(study, number=number)
        site.finish(study)

    seen = asyncio.run(listen())
    assert seen == list(range(1, 1203))


def test_one_read_of_new_events_serves_all_streams_of_a_process(site: Site) -> None:
    study = site.study()

    async def hear(poller: EventPoller) -> list[int]:
        return [heard.number async for heard in poller.listen(study.id, after=1)]

    async def listen() -> None:
        poller = EventPoller(site.database, interval=0.01)
        await poller.start()
        listeners = [asyncio.create_task(hear(poller)) for _ in range(20)]
        await asyncio.sleep(0.2)
        with statements() as sent:
            await asyncio.to_thread(site.finish, study)
            assert await asyncio.gather(*listeners) == [[2]] * 20
        assert len([text for text in sent if "FROM event" in text]) == 1
        await poller.stop()

    asyncio.run(listen())


def test_one_event_reaches_five_hundred_listeners(served: Served) -> None:
    site = served.site
    study = site.study()
    site.run(study)
    headers = {"Last-Event-ID": str(site.last_event(study))}

    async def hear(http: httpx2.AsyncClient, opened: asyncio.Semaphore) -> str:
        path = f"/v1/studies/{study.id}/events"
        async with http.stream("GET", path, headers=headers) as answer:
            assert answer.status_code == 200
            opened.release()
            async for line in answer.aiter_lines():
                if line.startswith("id:"):
                    return line
        return "nothing"

    async def listen() -> list[str]:
        limits = httpx2.Limits(max_connections=None)
        opened = asyncio.Semaphore(0)
        async with httpx2.AsyncClient(base_url=served.url, timeout=600, limits=limits) as http:
            heard = [asyncio.create_task(hear(http, opened)) for _ in range(500)]
            for _ in heard:
                await asyncio.wait_for(opened.acquire(), 60)
            await asyncio.to_thread(site.event, study, number=1)
            return await asyncio.gather(*heard)

    assert set(asyncio.run(listen())) == {f"id: {site.last_event(study)}"}


def test_streams_that_open_at_once_share_their_looks_at_the_database(site: Site) -> None:
    study = site.study()
    site.event(study, number=1)

    async def open_many() -> int:
        poller = EventPoller(site.database, interval=60)

        async def opened() -> list[int]:
            found = await poller.opening(site.database.of("local"), "local", study.id, 0)
            batches = poller.batches(study.id, after=0, opening=found)
            async with aclosing(batches):
                return [event.number for event in await anext(batches)]

        with statements() as sent:
            assert await asyncio.gather(*(opened() for _ in range(100))) == [[1, 2]] * 100
        await poller.stop()
        return len(sent)

    # Three looks, and those of the first one that was under way when all others came.
    assert asyncio.run(open_many()) < 40


def test_whoever_asks_while_a_look_is_under_way_waits_for_the_next() -> None:
    begun, go_on = threading.Event(), threading.Event()
    state = ["old"]

    def look() -> str:
        found = state[0]
        begun.set()
        assert go_on.wait(600)
        return found

    async def ask() -> tuple[str, str]:
        looks = SharedLooks(at_once=2)
        first = asyncio.create_task(looks.look("it", look))
        await asyncio.to_thread(begun.wait, 60)
        state[0] = "new"
        second = asyncio.create_task(looks.look("it", look))
        await asyncio.sleep(0)
        go_on.set()
        return await first, await second

    assert asyncio.run(ask()) == ("old", "new")
