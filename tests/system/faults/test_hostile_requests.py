"""Bytes that no honest client sends, on the wire: nothing gets out of its place, nothing breaks."""

import socket
from collections.abc import Iterator
from contextlib import suppress
from email.message import Message
from email.parser import BytesParser
from pathlib import Path

import httpx2
import psutil
import pytest

from storage.repositories.artifact_rows import ArtifactRows
from tests.service.processes import ApiProcess, running_api, wait_until
from tests.service.site import Site
from tests.service.uploading import CSV

MARK = "X-Injected"


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Site, ApiProcess]]:
    site = Site(tmp_path_factory.mktemp("hostile") / "data")
    secret = site.settings.data_dir.parent / "secret.csv"
    secret.write_text("the secret")
    with running_api(site.settings) as api:
        yield site, api
    site.close()


def connected(api: ApiProcess) -> socket.socket:
    host, port = api.url.removeprefix("http://").split(":")
    return socket.create_connection((host, int(port)), timeout=600)


def exchange(api: ApiProcess, request: bytes) -> tuple[int, Message, bytes]:
    """Send bytes as they are; the status (0: the connection was closed), the headers, the body."""
    received = b""
    with connected(api) as wire:
        try:
            wire.sendall(request)
            while piece := wire.recv(65536):
                received += piece
        except (BrokenPipeError, ConnectionResetError):
            pass  # it may be refused before all of it is sent
    head, _, body = received.partition(b"\r\n\r\n")
    line, _, fields = head.partition(b"\r\n")
    status = int(line.split()[1]) if line else 0
    return status, BytesParser().parsebytes(fields + b"\r\n\r\n"), body


def get(target: bytes, *headers: bytes) -> bytes:
    lines = [b"GET " + target + b" HTTP/1.1", b"Host: localhost", *headers, b"Connection: close"]
    return b"\r\n".join(lines) + b"\r\n\r\n"


TARGETS = {
    "up": b"/assets/../../settings.py",
    "up, encoded": b"/assets/..%2f..%2fsettings.py",
    "up, encoded twice": b"/assets/%252e%252e%252fsettings.py",
    "up, by backslashes": b"/assets/..%5c..%5csettings.py",
    "absolute": b"/assets//etc/passwd",
    "an id that goes up": b"/v1/studies/..%2f..%2fsecret.csv",
    "a dataset's id that goes up": b"/v1/datasets/%2e%2e%2f%2e%2e%2fsecret.csv",
    "an attempt's id that goes up": b"/v1/agents/a/attempts/..%2f../artifacts/resume",
    "a page, upwards": b"/studies/..%2f..%2fsecret.csv",
    "a line end": b"/v1/studies/a%0d%0a" + MARK.encode() + b":%20yes",
    "a line end in a query": b"/v1/studies?cursor=a%0d%0a" + MARK.encode() + b":%20yes",
    "a NUL": b"/v1/studies/a%00b",
    "no UTF-8": b"/v1/studies/%ff%fe",
    "an emoji": b"/v1/studies/%F0%9F%92%A9",
    "half of a surrogate": b"/v1/studies/%ed%a0%80",
    "a huge id": b"/v1/studies/" + b"x" * 60_000,
    "a huge path": b"/v1/studies/" + b"x" * 600_000,
    "a huge number": b"/v1/studies/a/trials/" + b"9" * 5000,
    "another site's": b"http://example.com/v1/studies",
    "no path": b"studies",
    "a query that is none": b"/v1/studies?limit=%F0%9F&limit=&=&&cursor=%00",
    "two slashes": b"//v1//studies",
}


@pytest.mark.parametrize("target", TARGETS.values(), ids=TARGETS)
def test_a_strange_target_is_refused_or_not_found(
    hostile: tuple[Site, ApiProcess], target: bytes
) -> None:
    status, headers, body = exchange(hostile[1], get(target))
    assert status < 500
    assert MARK not in headers
    assert b"the secret" not in body
    assert b"class Settings" not in body
    assert b"root:" not in body


HEADERS = {
    "a huge one": b"X-Anything: " + b"x" * 200_000,
    "very many": b"\r\n".join(b"X-%d: x" % number for number in range(5000)),
    "no UTF-8": b"Idempotency-Key: \xff\xfe",
    "a NUL": b"Idempotency-Key: a\x00b",
    "a bare line end": b"Last-Event-ID: 1\rX-Injected: yes",
    "a folded one": b"If-None-Match: a\r\n b",
    "a strange range": b"Range: bytes=-0,1-,99999999999999999999999999-",
    "many ranges": b"Range: bytes=" + b",".join([b"0-1"] * 2000),
    "many tags": b"If-None-Match: " + b", ".join([b'"a"'] * 5000),
    "a length below nothing": b"Content-Length: -1",
    "two lengths": b"Content-Length: 5\r\nContent-Length: 6",
    "a length and chunks": b"Content-Length: 5\r\nTransfer-Encoding: chunked",
    "two hosts": b"Host: example.com",
    "a cookie of nonsense": b"Cookie: " + b"a=b; " * 2000 + b'session="\xff\x00',
    "credentials of nonsense": b"Authorization: Bearer \xff\xfe\x01",
    "credentials without end": b"Authorization: Bearer " + b"x" * 50_000,
}


@pytest.mark.parametrize("header", HEADERS.values(), ids=HEADERS)
def test_a_strange_header_breaks_nothing(hostile: tuple[Site, ApiProcess], header: bytes) -> None:
    for target in (b"/v1/studies", b"/v1/studies/none/events", b"/"):
        status, headers, _ = exchange(hostile[1], get(target, header))
        assert status < 500
        assert MARK not in headers


HUGE = b"Content-Length: %d" % (400 << 20)
CHUNKED = b"Transfer-Encoding: chunked"
JSON = b"Content-Type: application/json"
BOGUS = b"Authorization: Bearer " + b"x" * 43

UNREAD = {
    "no key": (b"POST /v1/keys", (JSON, HUGE, BOGUS), b"[" * 1000, 401),
    "no key, in chunks": (b"POST /v1/studies", (JSON, CHUNKED, BOGUS), b"6\r\n[],[],\r\n", 401),
    "a wrong key": (
        b"PUT /v1/agents/a/attempts/nobody/artifacts/resume",
        (BOGUS, HUGE),
        b"x" * 1000,
        401,
    ),
    "a wrong key, that waits": (
        b"POST /v1/agents/a/sync",
        (BOGUS, HUGE, b"Expect: 100-continue"),
        b"",
        401,
    ),
    "a page": (
        b"POST /v1/agents",
        (JSON, HUGE, b"Origin: http://evil.example"),
        b"[" * 1000,
        403,
    ),
    "another name": (b"POST /v1/studies", (JSON, HUGE, b"X-Forwarded-For: a"), b"[", 403),
    "too large": (b"POST /v1/studies", (JSON, HUGE), b"[" * 1000, 413),
    "too large for a route without a body": (b"GET /v1/studies", (HUGE,), b"x", 413),
    "too large to log in": (b"POST /login", (HUGE,), b"key=", 413),
    "compressed": (b"POST /v1/studies", (JSON, CHUNKED, b"Content-Encoding: gzip"), b"", 415),
    "too deep, and not at its end": (
        b"POST /v1/studies",
        (JSON, CHUNKED),
        b"65\r\n" + b"[" * 101 + b"\r\n",
        422,
    ),
    "too many values, and not at its end": (
        b"POST /v1/studies",
        (JSON, CHUNKED),
        b"9c40\r\n" + b"[],[" * 10_000 + b"\r\n",
        422,
    ),
    "larger than it may be, in chunks": (
        b"POST /v1/studies",
        (JSON, CHUNKED),
        b"10000\r\n%s\r\n" % (b" " * 65536) * 17,
        413,
    ),
}


@pytest.mark.parametrize(("target", "headers", "body", "status"), UNREAD.values(), ids=UNREAD)
def test_a_refusal_comes_before_the_body_and_ends_the_connection(
    hostile: tuple[Site, ApiProcess],
    target: bytes,
    headers: tuple[bytes, ...],
    body: bytes,
    status: int,
) -> None:
    head = b"\r\n".join([target + b" HTTP/1.1", b"Host: localhost", *headers]) + b"\r\n\r\n"
    with connected(hostile[1]) as wire:
        # The last of it may come after the answer.
        with suppress(BrokenPipeError, ConnectionResetError):
            wire.sendall(head + body)
        received = b""
        while piece := wire.recv(65536):
            received += piece
    assert int(received.split()[1]) == status, received
    fields = BytesParser().parsebytes(received.partition(b"\r\n")[2])
    assert fields["Connection"] == "close"
    assert fields["Content-Type"] == "application/problem+json"


def test_what_is_sent_without_a_credential_is_neither_kept_nor_read(
    hostile: tuple[Site, ApiProcess],
) -> None:
    """400 MB of JSON each, as far as the server lets them come."""
    site, api = hostile
    process = psutil.Process(api.process.pid)
    files = sorted(site.settings.data_dir.rglob("*"))
    before, sent = process.memory_info().rss, 0
    targets = (b"POST /v1/agents/a/sync", b"PUT /v1/agents/a/attempts/nobody/artifacts/a")
    for target in targets:
        for credential in (b"Origin: http://evil.example", BOGUS):
            lines = [target + b" HTTP/1.1", b"Host: localhost", credential, HUGE]
            with connected(api) as wire, suppress(BrokenPipeError, ConnectionResetError):
                wire.sendall(b"\r\n".join(lines) + b"\r\n\r\n")
                for _ in range(400):
                    wire.sendall(b"[]," * 349_525)
                    sent += 1
    assert sent < 4 * 100, "the rest had nowhere to go"
    assert process.memory_info().rss - before < 20 << 20
    assert httpx2.get(f"{api.url}/healthz", timeout=300).status_code == 200
    assert sorted(site.settings.data_dir.rglob("*")) == files


def test_what_is_no_http_is_refused(hostile: tuple[Site, ApiProcess]) -> None:
    for request in (b"\x16\x03\x01\x02\x00\x01", b"GET\r\n\r\n", b"\x00" * 5000):
        assert exchange(hostile[1], request)[0] in (0, 400)
    # Empty lines before a request are passed over (RFC 9112, 2.2); none comes in time.
    assert exchange(hostile[1], b"\r\n" * 1000)[0] == 408


NAMES = {
    "upwards": "../../../../tmp/evil.csv",
    "a line end": "a\r\nX-Injected: yes.csv",
    "a NUL": "a\x00.csv",
    "very long": "x" * 5000 + ".csv",
    "unicode": "r\u00e9sum\u00e9 \u202etxt.csv",
    "a quote": 'a"; filename="b.csv',
    "a dot": ".csv",
    "a tag": "<script>alert(1)</script>.csv",
}


@pytest.mark.parametrize("name", NAMES.values(), ids=NAMES)
def test_a_files_name_leads_nowhere(hostile: tuple[Site, ApiProcess], name: str) -> None:
    site, api = hostile
    around = site.settings.data_dir.parent
    before = set(around.iterdir())
    body = (
        b'--x\r\nContent-Disposition: form-data; name="file"; filename="'
        + name.encode()
        + b'"\r\n\r\n'
        + CSV
        + b"\r\n--x--\r\n"
    )
    answer = httpx2.post(
        f"{api.url}/v1/datasets",
        content=body,
        headers={"Content-Type": "multipart/form-data; boundary=x"},
        timeout=600,
    )
    assert answer.status_code in (200, 201, 400, 422), answer.text
    assert MARK not in answer.headers
    assert set(around.iterdir()) == before
    assert list(site.settings.uploads_dir.rglob("*")) == []
    assert not Path("/tmp/evil.csv").exists()
    page = httpx2.get(f"{api.url}/datasets", timeout=300).text
    assert "<script>alert" not in page


STUDY_NAMES = [
    'a"b\\c; filename=d',
    "r\u00e9sum\u00e9 \U0001f4a9",
    "../../etc/passwd",
    "<script>alert(1)</script>",
]


@pytest.mark.parametrize("name", STUDY_NAMES)
def test_a_studys_name_is_text_in_headers_and_pages(
    hostile: tuple[Site, ApiProcess], name: str
) -> None:
    site, api = hostile
    study = site.study(name=name)
    site.run(study)
    site.trial(study, 0, quality=0.5, test_quality=0.5, throughput=100.0)
    site.finish(study)
    with httpx2.Client(base_url=api.url, timeout=600) as http:
        for path in (
            "front?format=csv",
            "bundle",
            "trials?format=csv",
            "trials/0/checkpoint",
            "trials/0/report?format=html",
        ):
            answer = http.get(f"/v1/studies/{study.id}/{path}")
            assert answer.status_code == 200, path
            assert MARK not in answer.headers
            if "html" in answer.headers["Content-Type"]:
                assert "<script>alert" not in answer.text
        for page in ("/", f"/studies/{study.id}"):
            assert "<script>alert" not in http.get(page).text


def test_a_client_that_leaves_in_the_middle_of_a_download_leaves_nothing(
    hostile: tuple[Site, ApiProcess],
) -> None:
    """Files that the process holds open, and what it keeps on disk, are as before."""
    site, api = hostile
    study = site.study()
    site.run(study)
    for number in range(2):
        site.trial(study, number, quality=0.5, test_quality=0.5, throughput=100.0 + number)
    large = site.keep(bytes(32 << 20))
    with site.database.write() as session:
        ArtifactRows(session).link(study.id, 0, "checkpoint", large)
    site.finish(study)
    process = psutil.Process(api.process.pid)
    base = f"/v1/studies/{study.id}"

    def is_done() -> bool:
        held = [file.path for file in process.open_files()]
        wires = [wire for wire in process.net_connections() if wire.status != psutil.CONN_LISTEN]
        return not wires and not any(str(site.settings.artifacts_dir) in path for path in held)

    files = sorted(site.settings.data_dir.rglob("*"))
    for path in (f"{base}/trials/0/checkpoint", f"{base}/bundle"):
        for _ in range(20):
            with connected(api) as wire:
                wire.sendall(get(path.encode()))
                assert wire.recv(1000).startswith(b"HTTP/1.1 200")
    wait_until(is_done)
    assert sorted(site.settings.data_dir.rglob("*")) == files
    assert "Traceback" not in api.log.read_text()
