"""Every request has an id, and a line of the access log where that is wished."""

import io
import json
import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from search.logs import JsonLines
from service.app import create_app
from tests.service.site import Site

EVIL = "/v1/studies/a%0d%0aevil?limit=1&secret=word"


@contextmanager
def logged() -> Iterator[list[dict[str, Any]]]:
    """What is logged meanwhile, as a program reads it."""
    stream, events = io.StringIO(), list[dict[str, Any]]()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonLines("api"))
    root = logging.getLogger()
    before = root.level
    root.addHandler(handler)
    root.setLevel(logging.INFO)
    try:
        yield events
    finally:
        root.removeHandler(handler)
        root.setLevel(before)
        events += [json.loads(line) for line in stream.getvalue().splitlines()]


@pytest.fixture
def talkative(tmp_path: Path) -> Iterator[TestClient]:
    site = Site(tmp_path / "data", access_log=True)
    app = create_app(site.settings)
    with TestClient(app, base_url="http://localhost:8080", raise_server_exceptions=False) as client:
        yield client
    site.close()


def test_a_sane_id_is_kept_and_any_other_is_made(client: TestClient) -> None:
    def answered(given: str | None) -> str:
        headers = {} if given is None else {"X-Request-ID": given}
        return client.get("/healthz", headers=headers).headers["X-Request-ID"]

    assert answered("trace-1.2_3") == "trace-1.2_3"
    made = [answered(given) for given in (None, "", "x" * 65, "a b", "a\tb", "a;b", "a/b")]
    assert all(re.fullmatch(r"[0-9a-f]{16}", one) for one in made)
    assert len(set(made)) == len(made)
    # Refused before any route, and answered all the same.
    assert client.post("/v1/studies", content=b"x" * (2 << 20)).headers["X-Request-ID"]


def test_the_access_log_has_paths_without_queries_on_one_line(talkative: TestClient) -> None:
    with logged() as events:
        talkative.get(EVIL, headers={"X-Request-ID": "mine"})
    (line,) = [event for event in events if event["logger"] == "service.access"]
    assert line["path"] == "/v1/studies/a\r\nevil"
    assert (line["method"], line["status"], line["request_id"]) == ("GET", 404, "mine")
    assert line["study_id"] == "a\r\nevil"
    assert line["seconds"] >= 0
    ours = [event for event in events if event["logger"].startswith(("service", "uvicorn"))]
    assert "secret" not in json.dumps(ours)


def test_without_a_wish_requests_are_not_logged(client: TestClient) -> None:
    with logged() as events:
        client.get("/v1/studies")
    assert not [event for event in events if event["logger"] == "service.access"]


def test_an_error_is_logged_and_answered_with_the_id(talkative: TestClient) -> None:
    # Whatever a route does not expect.
    app: Any = talkative.app
    held, app.state.resources = app.state.resources, None
    try:
        with logged() as events:
            answer = talkative.get("/v1/studies", headers={"X-Request-ID": "mine"})
    finally:
        app.state.resources = held
    assert answer.status_code == 500
    assert answer.headers["X-Request-ID"] == "mine"
    (line,) = [event for event in events if event["logger"] == "service.access"]
    assert (line["status"], line["request_id"]) == (500, "mine")
