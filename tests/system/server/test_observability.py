"""A real server that logs JSON, over a real study: what it tells of itself is what happened."""

import json
import re
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.service.observability.test_metrics import Scraped, parsed
from tests.service.running import Server, wait_until

SPEC: dict[str, Any] = {
    "task": {"kind": "digits"},
    "architectures": ["rnn"],
    "parametrizations": ["dense", "low_rank"],
    "space": {"hidden_size": 8},
    "budget": {"trials": 2, "epochs": 1},
    "sampler": {"kind": "random"},
    "objectives": ["quality", "parameters", "throughput"],
}
ANNOUNCED = ("Reflectory answers at", "  page ", "  dashboard ", "  data ")
"""What `serve` prints for its user, which is no log."""
PLAIN_LINE = re.compile(r"\d{4}-\d\d-\d\dT[\d:.]+Z [A-Z]+ search\.agents\.[\w.]+: ")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Started with JSON logs and requests in them."""
    environment = {"REFLECTORY_LOG_FORMAT": "json", "REFLECTORY_ACCESS_LOG": "true"}
    server = Server(
        tmp_path_factory.mktemp("observed") / "data", workers=1, environment=environment
    )
    server.start()
    yield server
    server.close()


def scrape(server: Server) -> Scraped:
    answer = server.http.get("/metrics")
    assert answer.status_code == 200
    return parsed(answer.text)


def events(server: Server) -> list[dict[str, Any]]:
    """The server's log so far, but for a line that is being written."""
    lines = server.log.read_text().rpartition("\n")[0].splitlines()
    return [json.loads(line) for line in lines if line.startswith("{")]


def test_a_study_is_told_of_while_it_runs_and_afterwards(server: Server) -> None:
    assert server.http.get("/readyz").json()["status"] == "ready"
    seen: list[dict[str, Any]] = []
    study_id = server.submit(SPEC)

    def on_slots() -> Any:
        (device,) = server.get("/v1/devices")["items"]
        seen.append(device)
        return [slot["attempt"] for slot in device["slots"] if slot["attempt"]]

    attempts = wait_until(on_slots, what="an attempt on a slot")
    assert {attempt["study"] for attempt in attempts} == {study_id}
    assert {attempt["kind"] for attempt in attempts} <= {"prepare", "train"}
    assert server.wait(study_id)["state"] == "finished"
    assert all(device["lane"]["state"] in ("free", "waiting", "measuring") for device in seen)

    def told() -> Scraped | None:
        found = scrape(server)
        finished = found.value("reflectory_studies", state="finished") == 1
        return found if finished and found.of("reflectory_ask_seconds_count") else None

    found = wait_until(told, what="a fresh look at the database")
    assert found.value("reflectory_attempts", kind="train", outcome="ended") == 2
    assert found.value("reflectory_attempts", kind="measure", outcome="ended") >= 1
    assert found.value("reflectory_device_seconds", kind="train") > 0
    assert 0 < found.value("reflectory_measuring_ratio") <= 1
    assert found.value("reflectory_artifact_bytes") > 0
    assert found.value("reflectory_coordinators") == 1
    (asks,) = found.of("reflectory_ask_seconds_count").values()
    (seconds,) = found.of("reflectory_ask_seconds_sum").values()
    assert asks >= 2
    assert 0 < seconds < 60 * asks
    submitted = {"method": "POST", "route": "/v1/studies", "status": "202"}
    assert found.value("reflectory_http_requests_total", **submitted) == 1
    again = scrape(server)
    counted = {"method": "GET", "route": "/metrics", "status": "200"}
    before = found.of("reflectory_http_requests_total").get(frozenset(counted.items()), 0)
    assert again.value("reflectory_http_requests_total", **counted) == before + 1


def test_open_streams_are_counted(server: Server) -> None:
    study_id = server.submit({**SPEC, "budget": {"trials": 1, "epochs": 500}})
    opened, leave = threading.Event(), threading.Event()

    def listen() -> None:
        with server.http.stream("GET", f"/v1/studies/{study_id}/events") as stream:
            for _ in stream.iter_lines():
                opened.set()
                if leave.is_set():
                    return

    listener = threading.Thread(target=listen)
    listener.start()
    try:
        assert opened.wait(600)
        assert scrape(server).value("reflectory_event_streams") == 1
    finally:
        leave.set()
        server.http.post(f"/v1/studies/{study_id}/cancel")
        listener.join(600)
    wait_until(
        lambda: scrape(server).value("reflectory_event_streams") == 0, what="the stream's end"
    )
    server.wait(study_id)


def test_every_line_of_every_process_is_json_with_the_ids_of_its_work(server: Server) -> None:
    study_id = server.submit({**SPEC, "budget": {"trials": 1, "epochs": 1}})
    server.wait(study_id)
    answer = server.http.get(f"/v1/studies/{study_id}?x=secret", headers={"X-Request-ID": "mine"})
    assert answer.headers["X-Request-ID"] == "mine"
    wait_until(
        lambda: any(event.get("request_id") == "mine" for event in events(server)),
        what="the request's line",
    )
    found = events(server)
    assert {event["process"] for event in found} >= {"api", "coordinator"}
    others = [line for line in server.log.read_text().splitlines() if not line.startswith("{")]
    assert all(line.startswith(ANNOUNCED) for line in others), others
    (line,) = [event for event in found if event.get("request_id") == "mine"]
    assert (line["logger"], line["path"]) == ("service.access", f"/v1/studies/{study_id}")
    assert line["study_id"] == study_id
    assert "secret" not in server.log.read_text()
    claimed = [event for event in found if event["message"] == "study claimed"]
    assert study_id in {event["study_id"] for event in claimed}
    logs = [
        [json.loads(line) for line in path.read_text().splitlines() if line.startswith("{")]
        for path in (server.data_dir / "logs").glob("*.log")
        if "." not in path.stem
    ]
    ours = [log for log in logs if log and log[0]["study_id"] == study_id]
    assert {event.get("trial") for log in ours for event in log} == {None, 0}
    for log in ours:
        assert len({event["attempt_id"] for event in log}) == 1
        assert {event["process"] for event in log} == {"worker"}
    (document,) = server.trials(study_id)
    shown = server.http.get(document["links"]["log"])
    assert shown.headers["content-type"] == "text/plain; charset=utf-8"
    assert PLAIN_LINE.match(shown.text), "people read it in words"
    assert "{" not in shown.text.partition("\n")[0]


@pytest.mark.slow
def test_a_coordinator_that_falls_silent_is_missed(tmp_path: Path) -> None:
    """`/readyz` says so, and its devices are listed no more, until it is heard again."""
    environment = {"REFLECTORY_COORDINATOR_SILENCE_SECONDS": "2", "REFLECTORY_LEASE_SECONDS": "2"}
    server = Server(tmp_path / "data", workers=1, environment=environment)
    try:
        server.start()
        wait_until(lambda: server.get("/v1/devices")["items"], what="a device")
        processes = server.processes()
        (coordinator,) = (one for one in processes if "coordinator" in one.cmdline())
        coordinator.suspend()
        try:
            away = wait_until(
                lambda: (
                    answer if (answer := server.http.get("/readyz")).status_code == 503 else None
                ),
                what="a server that misses its coordinator",
            )
            assert [fault["path"] for fault in away.json()["errors"]] == ["coordinator"]
            wait_until(lambda: not server.get("/v1/devices")["items"], what="an empty list")
        finally:
            coordinator.resume()
        wait_until(lambda: server.get("/v1/devices")["items"], what="the device again")
    finally:
        server.close()
