"""A real API with a real `reflectory worker`, whose attempts work for a test's own server.

What the machine says goes to the API, and so do logs. What attempts say goes to the server that
their ticket names, by the token of that ticket: the one that the API made for the machine is looked
up in the attempt's row, and refused when it is not the last one.
"""

import subprocess
import sys
import threading
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx2

from search.agents.executors import AttemptTicket, Exit, Slot
from search.agents.executors.remote import RemoteExecutor
from search.running.attempts import token_digest
from search.tasks import Digits
from search.training.jobs import PrepareJob
from storage.errors import LeaseLost
from storage.records import AttemptKind, AttemptRecord, AttemptState
from storage.repositories.attempts import Attempts
from storage.repositories.studies import Studies
from tests.service.processes import ApiProcess
from tests.service.running import wait_until
from tests.service.site import Site

_LEASE_SECONDS = 30.0


class JoinedExecutor:
    """`RemoteExecutor` as a coordinator uses it: a row for each attempt, and a place reserved.

    A coordinator never uses an id twice, as the tests do; each time it gets another name here.
    """

    def __init__(self, folder: Path) -> None:
        self._site = Site(folder / "data", lease_seconds=_LEASE_SECONDS)
        self._api = ApiProcess(self._site.settings)
        self._front = _Front(self._site, self._api.url)
        machine = folder / "machine"
        with (folder / "machine.log").open("wb") as log:
            command = [sys.executable, "-m", "service.cli", "worker", "--server", self._front.url]
            command += ["--workers", "2", "--data-dir", str(machine)]
            self._machine = subprocess.Popen(command, stdout=log, stderr=log)
        self._remote = RemoteExecutor(
            self._site.database, owner="test", lease_seconds=_LEASE_SECONDS, logs=machine / "logs"
        )
        self._running: dict[str, str] = {}
        self._names: dict[str, str] = {}
        wait_until(self._remote.capacity, what="a machine that joined")

    def capacity(self) -> Sequence[Slot]:
        return self._remote.capacity()

    def reserve(self, attempt_id: str, slot: Slot) -> bool:
        return self._remote.reserve(attempt_id, slot)

    def start(self, ticket: AttemptTicket, slot: Slot) -> None:
        fits = ticket.device == slot.device and slot in self._remote.capacity()
        if self._name(ticket.attempt_id) not in self._running and fits:
            name = f"{len(self._front.upstreams)}-{ticket.attempt_id}"
            self._names[ticket.attempt_id] = name
            self._front.upstreams[name] = ticket
            study_id = self._add(ticket, slot)
            if self.reserve(name, slot):
                self._running[name] = study_id
        self._remote.start(replace(ticket, attempt_id=self._name(ticket.attempt_id)), slot)

    def cancel(self, attempt_id: str, grace_seconds: float) -> None:
        self._remote.cancel(self._name(attempt_id), grace_seconds)

    def poll(self, timeout_seconds: float) -> Sequence[Exit]:
        ended = self._remote.poll(timeout_seconds)
        for one in ended:
            with self._site.database.write() as session:
                Studies(session).delete(self._running.pop(one.attempt_id))
        return [replace(one, attempt_id=one.attempt_id.partition("-")[2]) for one in ended]

    def log_path(self, attempt_id: str) -> Path:
        return self._remote.log_path(self._name(attempt_id))

    def _name(self, attempt_id: str) -> str:
        return self._names.get(attempt_id, attempt_id)

    def close(self) -> None:
        self._remote.close()
        if self._machine.poll() is None:
            self._machine.kill()
            self._machine.wait()
            self._front.close()
            self._site.close()
            self._api.process.kill()
            self._api.process.wait()

    def _add(self, ticket: AttemptTicket, slot: Slot) -> str:
        study = self._site.study()
        now = datetime.now(UTC)
        record = AttemptRecord(
            id=self._name(ticket.attempt_id),
            study_id=study.id,
            kind=AttemptKind.PREPARE,
            trial=None,
            number=1,
            state=AttemptState.RUNNING,
            job=PrepareJob(task=Digits()).model_dump(mode="json"),
            slot=slot.name,
            slot_share=slot.share,
            device=slot.device,
            lease_until=now,
            started_at=now,
        )
        with self._site.database.write() as session:
            Attempts(session).start(record, token_digest=token_digest(ticket.token))
        return study.id


class _Front(ThreadingHTTPServer):
    """Passes on what comes, to the API or to the server of the attempt's ticket."""

    daemon_threads = True

    def __init__(self, site: Site, api_url: str) -> None:
        super().__init__(("127.0.0.1", 0), _Passing)
        self.site = site
        self.api_url = api_url
        self.url = f"http://127.0.0.1:{self.server_port}"
        self.upstreams: dict[str, AttemptTicket] = {}
        self.http = httpx2.Client(timeout=700)
        threading.Thread(target=self.serve_forever, args=(0.01,), daemon=True).start()

    def close(self) -> None:
        self.shutdown()
        self.server_close()
        self.http.close()

    def upstream(self, path: str, authorization: str) -> tuple[str, str]:
        """Where a request goes, and what it shows there."""
        parts = path.split("/")
        if parts[2] != "attempts" or parts[4] == "log":
            return f"{self.api_url}{path}", authorization
        shown = token_digest(authorization.removeprefix("Bearer "))
        with self.site.database.read() as session:
            Attempts(session).authenticate(parts[3], shown)
        ticket = self.upstreams[parts[3]]
        there = "/".join([*parts[:3], ticket.attempt_id, *parts[4:]])
        return f"{ticket.url}{there}", f"Bearer {ticket.token}"


class _Passing(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1
    disable_nagle_algorithm = True

    def do_GET(self) -> None:
        self._pass()

    def do_POST(self) -> None:
        self._pass()

    def do_PUT(self) -> None:
        self._pass()

    def do_DELETE(self) -> None:
        self._pass()

    def log_message(self, format: str, *args: object) -> None:  # noqa: ARG002
        return

    def _pass(self) -> None:
        front = self.server
        assert isinstance(front, _Front)
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        try:
            url, authorization = front.upstream(self.path, self.headers.get("Authorization", ""))
        except LeaseLost:
            self._send(409, b"another token")
            return
        kept = ("Content-Type", "Content-SHA256", "Log-Cut")
        headers = {name: self.headers[name] for name in kept if name in self.headers}
        if authorization:
            headers["Authorization"] = authorization
        try:
            answer = front.http.request(self.command, url, content=body, headers=headers)
        except httpx2.TransportError:
            # The test is over, and its server with it.
            self.close_connection = True
            return
        self._send(answer.status_code, answer.content)

    def _send(self, status: int, content: bytes) -> None:
        self.send_response(status)
        if status != 204:
            self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if status != 204:
            self.wfile.write(content)
