"""A real HTTP server that speaks to a worker as the service does, see `search.training.jobs`."""

import contextlib
import hashlib
import socket
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self, TypeVar

from models.spec import Spec
from search.training.jobs import (
    Completion,
    EpochReport,
    Heartbeat,
    Job,
    MeasurementReport,
    Progress,
    Stored,
    Verdict,
)
from tests.patience import wait_while_it_moves

Word = TypeVar("Word", bound=Spec)

TOKEN = "the-secret-lease-token"

REPORTS: dict[str, type[Spec]] = {
    "heartbeat": Heartbeat,
    "progress": Progress,
    "metrics": EpochReport,
    "measurement": MeasurementReport,
    "complete": Completion,
}


@dataclass(frozen=True)
class Said:
    """One report that arrived."""

    what: str
    body: Spec
    at: float = field(default_factory=time.monotonic)


class AttemptApi:
    """Serves one attempt, `a1`, on a free loopback port.

    `fault(method, what)` may answer a status instead; it may also wait first. `verdict(said)` may
    answer another verdict than "continue".
    """

    def __init__(self, job: Job | None = None, *, lease_seconds: float = 10.0) -> None:
        self.job = job
        self.lease_seconds = lease_seconds
        self.said: list[Said] = []
        self.asked: list[str] = []
        self.connections: list[socket.socket] = []
        self.artifacts: dict[str, bytes] = {}
        self.fault: Callable[[str, str], int | None] = lambda _method, _what: None
        self.verdict: Callable[[Said], Verdict | None] = lambda _said: None
        self.changed = threading.Condition()
        self._server = _Server(("127.0.0.1", 0), self)
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Self:
        # A short poll interval, since shutting down waits for the current one.
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        for connection in self.connections:
            # A handler may have closed it already.
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        self._thread.join()

    def bodies(self, kind: type[Word]) -> list[Word]:
        return [said.body for said in self.said if isinstance(said.body, kind)]

    @property
    def completion(self) -> Completion:
        (completion,) = self.bodies(Completion)
        return completion

    @property
    def epochs(self) -> list[EpochReport]:
        return self.bodies(EpochReport)

    def wait_until(self, true: Callable[[], bool], *, seconds: float = 60.0) -> None:
        with self.changed:
            wait_while_it_moves(
                lambda: self.changed.wait_for(true, 1.0),
                what="a call of the attempt",
                moved=lambda: len(self.asked),
                seconds=seconds,
                pause=0.0,
            )


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, address: tuple[str, int], api: AttemptApi) -> None:
        super().__init__(address, _Handler)
        self.api = api

    def get_request(self) -> tuple[socket.socket, Any]:
        request, peer = super().get_request()
        self.api.connections.append(request)
        return request, peer

    def handle_error(self, request: Any, client_address: Any) -> None:
        # Clients that are killed break their connections; anything else is a fault of the test.
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    # Head and body as two packets would wait 40 ms for each other's acknowledgement.
    wbufsize = -1
    disable_nagle_algorithm = True

    def do_GET(self) -> None:
        self._answer()

    def do_POST(self) -> None:
        self._answer()

    def do_PUT(self) -> None:
        self._answer()

    def log_message(self, format: str, *args: object) -> None:  # noqa: ARG002
        return

    @property
    def _api(self) -> AttemptApi:
        assert isinstance(self.server, _Server)
        return self.server.api

    def _answer(self) -> None:
        api = self._api
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        prefix = "/v1/attempts/a1/"
        what = self.path.removeprefix(prefix)
        with api.changed:
            api.asked.append(f"{self.command} {what}")
            api.changed.notify_all()
        status = api.fault(self.command, what)
        if status is not None:
            self._send(status, b"no")
        elif not self.path.startswith(prefix):
            self._send(404, b"no such attempt")
        elif self.headers.get("Authorization") != f"Bearer {TOKEN}":
            self._send(401, b"wrong token")
        elif what.startswith("artifacts/"):
            self._artifact(what.removeprefix("artifacts/"), body)
        elif what == "job":
            assert api.job is not None
            self._send(200, api.job.model_dump_json().encode())
        else:
            said = Said(what, REPORTS[what].model_validate_json(body))
            with api.changed:
                api.said.append(said)
                api.changed.notify_all()
            verdict = api.verdict(said) or Verdict(lease_seconds=api.lease_seconds)
            self._send(200, verdict.model_dump_json().encode())

    def _artifact(self, role: str, body: bytes) -> None:
        api = self._api
        if self.command == "GET":
            found = api.artifacts.get(role)
            self._send(404, b"none") if found is None else self._send(200, found)
            return
        digest = hashlib.sha256(body).hexdigest()
        if self.headers.get("Content-SHA256") != digest:
            self._send(422, b"damaged on the way")
            return
        with api.changed:
            api.artifacts[role] = body
            api.changed.notify_all()
        self._send(200, Stored(sha256=digest, size=len(body)).model_dump_json().encode())

    def _send(self, status: int, body: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
