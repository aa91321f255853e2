"""Every route, asked without a credential: answered before a byte of a body is read."""

import asyncio
import re
from collections.abc import Iterator
from typing import Any

import pytest
from fastapi.routing import APIRoute
from starlette.testclient import TestClient
from starlette.types import Message

from service.app import create_app
from service.auth.api_keys import create_key, revoke_key
from service.http.body_limits import BODIES
from service.routers import ROUTERS
from storage.records import TrialState
from tests.service.site import Lease, Site

OPEN = {
    *("/healthz", "/readyz", "/login", "/logout"),
    *("/assets/plotly.min.js", "/assets/plotly.css"),
}
"""Routes for everybody; those of them that take a body take little."""

JOINING = ("POST", "/v1/agents")

PATHS = {
    "study_id": "3f1c9a2b7d4e",
    "number": "0",
    "rest:path": "studies",
    "role": "resume",
    "machine_id": "4f1d2c3b5a697887",
}


def routes() -> list[tuple[str, str]]:
    """Every method and path template that the service answers."""
    return [
        (method, route.path)
        for router in ROUTERS
        for route in router.routes
        if isinstance(route, APIRoute)
        for method in sorted(route.methods or ())
    ]


def path_of(template: str) -> str:
    return re.sub(r"{([^}]*)}", lambda part: PATHS.get(part.group(1), "unknown"), template)


class Door:
    """The real application, asked as a server asks it."""

    def __init__(self, client: TestClient) -> None:
        self._client = client
        self.read = 0

    def ask(
        self,
        method: str,
        path: str,
        *,
        headers: dict[str, str] | None = None,
        client: tuple[str, int] | None = ("203.0.113.9", 50000),
        server: tuple[str, int | None] = ("127.0.0.1", 8080),
    ) -> tuple[int, dict[str, str]]:
        """The status and headers of an answer; `read` counts how often the body was asked for."""
        sent: list[Message] = []
        given = {
            "host": "localhost:8080",
            "content-type": "application/json",
            "content-length": str(400 << 20),
            **(headers or {}),
        }

        async def receive() -> Message:
            self.read += 1
            return {"type": "http.request", "body": b"[" * 65536, "more_body": True}

        async def send(message: Message) -> None:
            sent.append(message)

        scope: dict[str, Any] = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": path,
            "raw_path": path.encode(),
            "query_string": b"",
            "root_path": "",
            "headers": [(name.lower().encode(), value.encode()) for name, value in given.items()],
            "client": client,
            "server": server,
            "state": {},
        }
        assert self._client.portal is not None
        self._client.portal.call(_run, self._client.app, scope, receive, send)
        [start] = [message for message in sent if message["type"] == "http.response.start"]
        answered = {name.decode(): value.decode() for name, value in start["headers"]}
        return start["status"], answered


async def _run(app: Any, scope: Any, receive: Any, send: Any) -> None:
    await asyncio.wait_for(app(scope, receive, send), 60)


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Site, Door]]:
    """A server with keys, which counts no addresses."""
    site = Site(tmp_path_factory.mktemp("door"), refusals_per_minute=10**6)
    create_key(site.database, name="the first", scopes=("admin",))
    with TestClient(create_app(site.settings), base_url="http://localhost:8080") as client:
        yield site, Door(client)
    site.close()


def running(site: Site) -> Lease:
    study = site.study()
    site.run(study)
    site.trial(study, 0, state=TrialState.RUNNING)
    return site.lease(study, 0)


@pytest.mark.parametrize("credential", ["none", "bogus", "revoked", "of another scope"])
def test_no_byte_of_a_body_is_read_for_who_may_not_come_in(
    guarded: tuple[Site, Door], credential: str
) -> None:
    site, door = guarded
    revoked = create_key(site.database, name="revoked", scopes=("admin",))
    revoke_key(site.database, revoked.record.id)
    shown = {
        "none": None,
        "bogus": "rfl_" + "A" * 43,
        "revoked": revoked.text,
        # A machine's key opens nothing of a tenant's.
        "of another scope": create_key(site.database, name="machine", scopes=("work",)).text,
    }[credential]
    headers = {} if shown is None else {"Authorization": f"Bearer {shown}"}
    for method, template in routes():
        of_machines = template.startswith("/v1/agents/") or (method, template) == JOINING
        # On a server that only loopback reaches, figures are told without a key.
        of_figures = template == "/metrics" and credential == "none"
        its_own = of_machines and credential == "of another scope"
        if template in OPEN or of_figures or its_own:
            continue
        for more in ({}, {"Transfer-Encoding": "chunked"}, {"Content-Encoding": "gzip"}):
            status, answered = door.ask(method, path_of(template), headers={**headers, **more})
            assert status in (401, 403, 409), (method, template, status)
            assert answered["connection"] == "close", (method, template)
            assert door.read == 0, (method, template)


def test_what_is_open_to_all_takes_little(guarded: tuple[Site, Door]) -> None:
    _, door = guarded
    for method, template in routes():
        if template in OPEN:
            assert door.ask(method, template)[0] == 413
            assert door.read == 0


def test_a_unix_socket_opens_what_agents_ask_and_nothing_else(guarded: tuple[Site, Door]) -> None:
    site, door = guarded
    admin = create_key(site.database, name="admin", scopes=("admin",))
    by_socket: dict[str, Any] = {"client": None, "server": ("/run/reflectory/api.sock", None)}
    nothing = {"content-length": "0"}
    for method, template in routes():
        if not template.startswith("/v1/agents") and template not in OPEN:
            headers = {"Authorization": f"Bearer {admin.text}"}
            path = path_of(template)
            assert door.ask(method, path, headers=headers, **by_socket)[0] == 403, template
    lease = running(site)
    path, headers = lease.path("artifacts/resume"), {**nothing, **lease.headers}
    # It has none; another attempt's token, or none, is told nothing.
    assert door.ask("GET", path, headers=headers, **by_socket)[0] == 404
    wrong = {**nothing, "Lease-Token": "another"}
    assert door.ask("GET", path, headers=wrong, **by_socket)[0] == 409
    assert door.ask("GET", path, headers=nothing, **by_socket)[0] == 422
    assert door.ask("GET", "/healthz", headers=nothing, **by_socket)[0] == 200
    # A name is nothing that a socket has.
    strange = {**headers, "host": "anything"}
    assert door.ask("GET", path, headers=strange, **by_socket)[0] == 404


def test_every_body_that_is_no_json_has_a_limit_of_its_own(guarded: tuple[Site, Door]) -> None:
    site, _ = guarded
    paths = create_app(site.settings).openapi()["paths"]
    described = {
        (method.upper(), path): set(operation["requestBody"]["content"])
        for path, operations in paths.items()
        for method, operation in operations.items()
        if "requestBody" in operation
    }
    assert len(described) > 10
    for route, media_types in described.items():
        own = BODIES.get(route)
        assert media_types == {"application/json" if own is None else own.media_type}, route
    unknown = set(BODIES) - set(routes())
    assert not unknown, "limits of routes that are not there"
