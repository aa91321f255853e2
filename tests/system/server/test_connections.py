"""What a client may hold by connections alone: raw sockets that say little, slowly, or too much."""

import json
import resource
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress

import httpx2
import psutil
import pytest

from search.agents.api_client import api_client, unix_url
from service.http.connections import allow_open_files
from service.settings import Settings
from storage.repositories.artifact_rows import ArtifactRows
from tests.service.processes import ApiProcess, running_api, wait_until
from tests.service.site import Site

FAST: dict[str, object] = {
    "header_seconds": 2.0,
    "body_idle_seconds": 2.0,
    "body_seconds": 6.0,
    "body_bytes_per_second": 1000,
    "answer_idle_seconds": 3.0,
    "connections": 40,
    "connections_per_address": 30,
    "requests_at_once": 12,
}


def changed(settings: Settings, **more: object) -> Settings:
    return settings.model_copy(update={**FAST, **more})


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    site = Site(tmp_path_factory.mktemp("connections") / "data")
    yield site
    site.close()


@pytest.fixture(scope="module")
def api(site: Site) -> Iterator[ApiProcess]:
    path = site.settings.data_dir / "api.sock"
    with running_api(changed(site.settings, attempts_socket=path, public_attempts=True)) as api:
        yield api


def wire(api: ApiProcess, source: str = "127.0.0.1") -> socket.socket:
    host, port = api.url.removeprefix("http://").split(":")
    return socket.create_connection((host, int(port)), timeout=600, source_address=(source, 0))


def answer_of(connection: socket.socket) -> bytes:
    """All that comes until the server closes."""
    received = b""
    with suppress(ConnectionResetError):
        while piece := connection.recv(65536):
            received += piece
    return received


def get(path: str) -> bytes:
    return f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()


POST = b"POST /v1/studies HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"


def test_a_connection_that_says_nothing_is_closed_without_a_word(api: ApiProcess) -> None:
    with wire(api) as held:
        assert answer_of(held) == b""


@pytest.mark.parametrize(
    "begun",
    [b"GET", b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX-Slow: "],
    ids=["half a line", "half the headers"],
)
def test_headers_that_never_end_are_answered_408(api: ApiProcess, begun: bytes) -> None:
    with wire(api) as held:
        held.sendall(begun)
        head, _, body = answer_of(held).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 408 ")
    assert b"application/problem+json" in head
    assert "2 s for the headers" in json.loads(body)["detail"]


def test_headers_that_come_byte_by_byte_are_not_waited_for_any_longer(api: ApiProcess) -> None:
    """However lively: it is the whole head that has to be there in time."""
    with wire(api) as held:
        held.sendall(get("/healthz")[:-2])
        held.settimeout(0.2)
        received = b""
        with suppress(BrokenPipeError, ConnectionResetError):
            while True:
                held.sendall(b"X: y\r\n")
                with suppress(TimeoutError):
                    received = held.recv(1000)
                    break
    assert received.startswith(b"HTTP/1.1 408 ")


def test_the_second_request_of_a_connection_has_to_be_whole_in_time_too(api: ApiProcess) -> None:
    with wire(api) as held:
        held.sendall(get("/healthz"))
        assert held.recv(10_000).startswith(b"HTTP/1.1 200 ")
        held.sendall(get("/healthz")[:-2])
        assert b"HTTP/1.1 408 " in answer_of(held)


def test_a_body_that_stands_still_is_answered_408(api: ApiProcess) -> None:
    for framing in (
        b"Content-Length: 1000\r\n\r\n{",
        b"Transfer-Encoding: chunked\r\n\r\n1\r\n{\r\n",
    ):
        with wire(api) as held:
            held.sendall(POST + framing)
            answer = answer_of(held)
        assert answer.startswith(b"HTTP/1.1 408 "), answer
        assert b"2 s between two pieces" in answer


def test_a_body_that_trickles_is_answered_408(api: ApiProcess) -> None:
    received = b""
    with wire(api) as held:
        held.sendall(POST + b"Content-Length: 100000\r\n\r\n")
        held.settimeout(0.2)
        with suppress(BrokenPipeError, ConnectionResetError):
            while not received:
                held.sendall(b" ")
                with suppress(TimeoutError):
                    received = held.recv(10_000)
    assert received.startswith(b"HTTP/1.1 408 ")
    assert b"1000 bytes of a body a second" in received


def test_a_body_that_is_slow_and_steady_enough_arrives(api: ApiProcess) -> None:
    """Longer than `body_seconds`, and at twice the speed that is asked for after that."""
    body = b'{"task": {"kind": "digits"}, "name": "' + b" " * 18_000
    with wire(api) as held:
        held.sendall(POST + b"Content-Length: %d\r\n\r\n" % len(body))
        began = time.monotonic()
        for place in range(0, len(body), 1000):
            held.sendall(body[place : place + 1000])
            time.sleep(max(0.0, began + place / 2000 - time.monotonic()))
        # All of it was read: it is refused for what it says.
        assert held.recv(10_000).startswith(b"HTTP/1.1 4")
        assert time.monotonic() - began > 6


def test_an_answer_that_nobody_takes_is_broken_off(api: ApiProcess, site: Site) -> None:
    process = psutil.Process(api.process.pid)
    stored = site.keep(bytes(64 << 20))
    study = site.study()
    site.run(study)
    site.trial(study, 0, quality=0.5, test_quality=0.5, throughput=1.0)
    with site.database.write() as session:
        ArtifactRows(session).link(study.id, 0, "checkpoint", stored)
    with wire(api) as held:
        held.sendall(get(f"/v1/studies/{study.id}/trials/0/checkpoint"))
        assert held.recv(100).startswith(b"HTTP/1.1 200 ")
        mine = held.getsockname()[1]
        assert mine in _peers(process)
        wait_until(lambda: mine not in _peers(process))


def _peers(process: psutil.Process) -> set[int]:
    return {one.raddr.port for one in process.net_connections("tcp") if one.raddr}


def test_a_body_that_goes_on_after_its_answer_is_not_listened_to_for_ever(api: ApiProcess) -> None:
    with wire(api) as held:
        held.sendall(POST + b"Content-Length: 50000000\r\n\r\n")
        with suppress(BrokenPipeError, ConnectionResetError):
            while True:
                held.sendall(b"x" * 65536)
                time.sleep(0.01)


def test_many_silent_connections_keep_nobody_out(api: ApiProcess) -> None:
    """The oldest one makes room, so that who comes with a request is heard."""
    with ExitStack() as held:
        silent = [held.enter_context(wire(api)) for _ in range(200)]
        assert httpx2.get(f"{api.url}/healthz", timeout=600).status_code == 200
        wait_until(lambda: len(_peers(psutil.Process(api.process.pid))) <= 40)
        assert answer_of(silent[0]) == b""


def test_requests_beyond_the_limits_are_refused_and_the_rest_goes_on(
    api: ApiProcess, site: Site
) -> None:
    study = site.study()
    listen = get(f"/v1/studies/{study.id}/events")

    def streams(held: ExitStack, source: str, number: int) -> list[bytes]:
        heads: list[bytes] = []
        for _ in range(number):
            connection = held.enter_context(wire(api, source))
            connection.sendall(listen)
            heads.append(connection.recv(4000))
        return heads

    with ExitStack() as held:
        opened = streams(held, "127.0.0.1", 12)
        assert all(head.startswith(b"HTTP/1.1 200 ") for head in opened)
        refused = httpx2.get(f"{api.url}/v1/studies", timeout=600)
        assert refused.status_code == 503
        assert refused.headers["Retry-After"] == "1"
        assert "12 requests are under way" in refused.json()["detail"]
        assert httpx2.get(f"{api.url}/healthz", timeout=600).status_code == 200
        with api_client(unix_url(site.settings.data_dir / "api.sock"), "", timeout=600) as own:
            assert own.post("/v1/agents/nobody/poll", json={}).status_code == 422

    wait_until(lambda: httpx2.get(f"{api.url}/v1/studies", timeout=600).status_code == 200)


def test_connections_with_requests_are_limited_by_address_and_in_all(site: Site) -> None:
    study = site.study()
    limits = {"requests_at_once": 1000, "connections": 8, "connections_per_address": 5}
    with running_api(changed(site.settings, **limits)) as api, ExitStack() as held:

        def stream(source: str) -> bytes:
            connection = held.enter_context(wire(api, source))
            with suppress(OSError):
                connection.sendall(get(f"/v1/studies/{study.id}/events"))
            return connection.recv(4000)

        assert all(stream("127.0.0.1").startswith(b"HTTP/1.1 200 ") for _ in range(5))
        assert stream("127.0.0.1").startswith(b"HTTP/1.1 429 ")
        assert all(stream("127.0.0.2").startswith(b"HTTP/1.1 200 ") for _ in range(3))
        assert stream("127.0.0.3").startswith(b"HTTP/1.1 503 ")


def test_a_process_may_have_the_files_that_its_connections_need() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
        allow_open_files(300)
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] > 300
        allow_open_files(10)
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] > 300, "it takes nothing away"
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_what_was_refused_is_counted_by_why(api: ApiProcess) -> None:
    """All that the tests above have brought about."""
    with wire(api) as held:
        held.sendall(b"GET")
        answer_of(held)
    shown = httpx2.get(f"{api.url}/metrics", timeout=600).text
    counted = dict(line.split() for line in shown.splitlines() if "http_refusals_total{" in line)
    assert float(counted['reflectory_http_refusals_total{reason="head-slow"}']) >= 1
