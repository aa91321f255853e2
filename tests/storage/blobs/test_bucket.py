"""The store in a bucket: what lies there, and what becomes of faults of the server and the way."""

import hashlib
import io
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import httpx2
import pytest

from storage.blobs.blocks import BLOCK_BYTES, BlockList
from storage.blobs.bucket import S3ArtifactStore
from storage.blobs.places import BucketPlace
from storage.errors import (
    ArtifactDamaged,
    ArtifactNotFound,
    StoreFull,
    StoreRefused,
    StoreUnavailable,
)
from tests.s3_server import S3Server
from tests.service.relay import Relay

LARGE = b"".join(bytes([number]) * (BLOCK_BYTES - number) for number in range(3))
DIGEST = hashlib.sha256(LARGE).hexdigest()
SMALL = b"report"
SMALL_DIGEST = hashlib.sha256(SMALL).hexdigest()

pytestmark = pytest.mark.usefixtures("aws_credentials")


@pytest.fixture
def place(s3_server: S3Server) -> BucketPlace:
    return s3_server.place()


@pytest.fixture
def store(place: BucketPlace) -> S3ArtifactStore:
    return S3ArtifactStore(place)


@pytest.fixture
def relay(s3_server: S3Server) -> Iterator[Relay]:
    with Relay(("127.0.0.1", s3_server.port)) as relay:
        yield relay


def behind(relay: Relay, place: BucketPlace) -> S3ArtifactStore:
    return S3ArtifactStore(replace(place, endpoint=relay.url))


def replaced(server: S3Server, place: BucketPlace, part: str, digest: str, content: bytes) -> None:
    key = f"{place.prefix}{part}/{digest}"
    server.client.put_object(Bucket=place.bucket, Key=key, Body=content)


def test_objects_are_named_by_their_digests_below_the_prefix(
    s3_server: S3Server, place: BucketPlace, store: S3ArtifactStore
) -> None:
    store.write(SMALL_DIGEST, io.BytesIO(SMALL))
    assert s3_server.objects(place) == {f"reflectory/sha256/{SMALL_DIGEST}": SMALL}
    store.write(DIGEST, io.BytesIO(LARGE))
    assert set(s3_server.objects(place)) == {
        f"reflectory/sha256/{SMALL_DIGEST}",
        f"reflectory/sha256/{DIGEST}",
        f"reflectory/blocks/{DIGEST}",
    }
    store.remove_all([SMALL_DIGEST, DIGEST])
    assert s3_server.objects(place) == {}


def test_two_stores_in_one_bucket_do_not_see_each_other(
    place: BucketPlace, store: S3ArtifactStore
) -> None:
    store.write(SMALL_DIGEST, io.BytesIO(SMALL))
    other = S3ArtifactStore(replace(place, prefix="reflectory/of-another/"))
    assert list(other.digests()) == []
    assert other.is_new()
    with pytest.raises(ArtifactNotFound):
        other.size(SMALL_DIGEST)


@pytest.mark.parametrize("damage", [b"", b"repor", b"rePort", b"report and more"])
def test_small_damaged_bytes_are_not_handed_out(
    s3_server: S3Server, place: BucketPlace, store: S3ArtifactStore, damage: bytes
) -> None:
    store.write(SMALL_DIGEST, io.BytesIO(SMALL))
    replaced(s3_server, place, "sha256", SMALL_DIGEST, damage)
    with pytest.raises(ArtifactDamaged, match=SMALL_DIGEST):
        store.open_reader(SMALL_DIGEST)
    store.write(SMALL_DIGEST, io.BytesIO(SMALL))
    with store.open_reader(SMALL_DIGEST) as reader:
        assert reader.read() == SMALL


@pytest.mark.parametrize("number", [0, 1, 2])
def test_of_a_damaged_block_not_a_byte_is_handed_out(
    s3_server: S3Server, place: BucketPlace, store: S3ArtifactStore, number: int
) -> None:
    store.write(DIGEST, io.BytesIO(LARGE))
    at = number * BLOCK_BYTES + 1000
    replaced(s3_server, place, "sha256", DIGEST, LARGE[:at] + b"?" + LARGE[at + 1 :])
    received = b""

    def receive() -> None:
        nonlocal received
        with store.open_reader(DIGEST) as reader:
            while piece := reader.read(1 << 20):
                received += piece

    with pytest.raises(ArtifactDamaged, match=DIGEST):
        receive()
    assert received == LARGE[: len(received)]
    assert len(received) <= number * BLOCK_BYTES
    if number > 0:
        # A block that is as it was can be had.
        with store.open_reader(DIGEST) as reader:
            reader.seek((3 - number) * BLOCK_BYTES)
            assert reader.read(9) == LARGE[(3 - number) * BLOCK_BYTES :][:9]


def test_bytes_that_agree_with_a_wrong_list_are_not_handed_out_to_the_end(
    s3_server: S3Server, place: BucketPlace, store: S3ArtifactStore
) -> None:
    """Whoever writes to the bucket can write both, and not the name of the artifact."""
    forged = LARGE[:-1] + b"?"
    store.write(DIGEST, io.BytesIO(LARGE))
    digests = [
        hashlib.sha256(forged[at : at + BLOCK_BYTES]).digest()
        for at in range(0, len(forged), BLOCK_BYTES)
    ]
    wrong = BlockList(DIGEST, len(forged), b"".join(digests)).to_bytes()
    replaced(s3_server, place, "blocks", DIGEST, wrong)
    replaced(s3_server, place, "sha256", DIGEST, forged)
    with store.open_reader(DIGEST) as reader, pytest.raises(ArtifactDamaged, match=DIGEST):
        reader.read()


@pytest.mark.parametrize("fault", ["gone", "damaged", "of another", "empty"])
def test_a_list_of_blocks_is_made_again_when_it_is_no_good(
    s3_server: S3Server, place: BucketPlace, store: S3ArtifactStore, fault: str
) -> None:
    store.write(DIGEST, io.BytesIO(LARGE))
    key = f"{place.prefix}blocks/{DIGEST}"
    written = s3_server.objects(place)[key]
    if fault == "gone":
        s3_server.client.delete_object(Bucket=place.bucket, Key=key)
    else:
        bad = {"damaged": b"?" + written[1:], "of another": written[32:], "empty": b""}[fault]
        replaced(s3_server, place, "blocks", DIGEST, bad)
    with store.open_reader(DIGEST) as reader:
        reader.seek(BLOCK_BYTES + 7)
        assert reader.read(20) == LARGE[BLOCK_BYTES + 7 :][:20]
    assert s3_server.objects(place)[key] == written


def test_a_part_of_a_large_artifact_costs_no_more_than_its_blocks(
    s3_server: S3Server, place: BucketPlace, store: S3ArtifactStore, relay: Relay
) -> None:
    content = os.urandom(1 << 20) * 48
    digest = hashlib.sha256(content).hexdigest()
    store.write(digest, io.BytesIO(content))
    with behind(relay, place).open_reader(digest) as reader:
        reader.seek(-(1 << 20), io.SEEK_END)
        assert reader.read() == content[-(1 << 20) :]
    assert sum(relay.passed) < 2 * BLOCK_BYTES + 10_000


def test_a_killed_writer_leaves_nothing_visible_and_is_swept_up_after(
    s3_server: S3Server, place: BucketPlace, store: S3ArtifactStore
) -> None:
    program = """
import os, sys
from storage.blobs.places import place_of
from storage.blobs.stores import open_store

class Dying:
    left = 20 << 20
    def read(self, size):
        if self.left <= 0:
            os.kill(os.getpid(), 9)
        self.left -= size
        return b"x" * size

open_store(place_of(sys.argv[1])).write("ab" * 32, Dying())
"""
    url = f"{place}?endpoint={place.endpoint}&region={place.region}"
    writer = subprocess.run([sys.executable, "-c", program, url], check=False, timeout=600)
    assert writer.returncode == -9
    with pytest.raises(ArtifactNotFound):
        store.size("ab" * 32)
    assert s3_server.unfinished(place) == [f"reflectory/sha256/{'ab' * 32}"]
    store.write(DIGEST, io.BytesIO(LARGE))
    assert store.sweep() == 1
    assert s3_server.unfinished(place) == []
    with store.open_reader(DIGEST) as reader:
        assert reader.read() == LARGE


def test_a_list_without_an_artifact_is_swept_when_it_is_old(
    s3_server: S3Server, place: BucketPlace, store: S3ArtifactStore
) -> None:
    store.write(DIGEST, io.BytesIO(LARGE))
    key = f"{place.prefix}sha256/{DIGEST}"
    s3_server.client.delete_object(Bucket=place.bucket, Key=key)
    assert store.sweep() == 0, "its writer may live"
    assert store.sweep(older_than_seconds=-2.0) == 1
    assert s3_server.objects(place) == {}


def test_a_transfer_that_breaks_is_repeated_and_given_up_when_it_stays_broken(
    place: BucketPlace, store: S3ArtifactStore, relay: Relay
) -> None:
    store.write(SMALL_DIGEST, io.BytesIO(SMALL * 1))
    store.write(DIGEST, io.BytesIO(LARGE))
    broken = behind(relay, place)
    relay.cuts.append(1 << 20)
    with broken.open_reader(DIGEST) as reader:
        assert len(relay.passed) == 3, "block 0 twice, and the list of the blocks"
        relay.cuts.extend([1 << 20, 1 << 10])
        assert reader.read() == LARGE
    relay.cuts.extend([2000] * 20)
    with pytest.raises(StoreUnavailable, match="does not answer"):
        broken.open_reader(DIGEST)


def test_without_a_server_calls_end_soon_and_say_so(place: BucketPlace) -> None:
    store = S3ArtifactStore(replace(place, endpoint="http://127.0.0.1:1"))
    for call in CALLS:
        began = time.monotonic()
        with pytest.raises(StoreUnavailable) as away:
            call(store)
        assert time.monotonic() - began < 30, "a transaction may wait for this"
        assert not isinstance(away.value, StoreRefused)
        assert "127.0.0.1" not in str(away.value)
        assert str(place) in str(away.value)


CALLS: tuple[Callable[[S3ArtifactStore], object], ...] = (
    lambda store: store.open_reader(SMALL_DIGEST),
    lambda store: store.write(SMALL_DIGEST, io.BytesIO(SMALL)),
    lambda store: store.size(SMALL_DIGEST),
    lambda store: store.remove(SMALL_DIGEST),
    lambda store: store.remove_all([SMALL_DIGEST]),
    lambda store: store.check_room(),
    lambda store: store.check_access(),
    lambda store: store.is_new(),
    lambda store: list(store.digests()),
    lambda store: store.sweep(),
)


@pytest.mark.parametrize("call", CALLS)
def test_a_bucket_that_is_not_there_is_told_from_an_artifact_that_is_not(
    s3_server: S3Server, call: Callable[[S3ArtifactStore], object]
) -> None:
    nowhere = BucketPlace("nobody-made-this", endpoint=s3_server.url, region="us-east-1")
    with pytest.raises((StoreRefused, ArtifactNotFound)) as refused:
        call(S3ArtifactStore(nowhere))
    # The answer to a HEAD has no body, and so no word for what is missing.
    if not isinstance(refused.value, ArtifactNotFound):
        assert "nobody-made-this" in str(refused.value)
        assert "make it first" in str(refused.value)


def test_without_credentials_it_is_said_where_they_belong(
    monkeypatch: pytest.MonkeyPatch, place: BucketPlace
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nowhere")
    monkeypatch.setenv("AWS_CONFIG_FILE", "/nowhere")
    with pytest.raises(StoreRefused, match="AWS_ACCESS_KEY_ID"):
        S3ArtifactStore(place).check_access()
    monkeypatch.setenv("AWS_PROFILE", "nobody")
    with pytest.raises(StoreRefused, match="ProfileNotFound"):
        S3ArtifactStore(place)


def test_credentials_that_are_refused_are_told_of_and_not_shown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # After the first call, which makes the bucket, this server looks at who asks.
    server = S3Server({"INITIAL_NO_AUTH_ACTION_COUNT": "1"})
    try:
        store = S3ArtifactStore(server.place())
        with pytest.raises(StoreRefused, match="refuses these credentials") as refused:
            store.check_access()
    finally:
        server.stop()
    assert "nobody-needs-to-guess-this" not in str(refused.value)


def test_a_server_that_hangs_is_not_waited_for_in_a_transaction() -> None:
    server = S3Server()
    try:
        store = S3ArtifactStore(server.place())
        store.write(SMALL_DIGEST, io.BytesIO(SMALL))
        server.suspend()
        began = time.monotonic()
        with pytest.raises(StoreUnavailable, match="does not answer"):
            store.size(SMALL_DIGEST)
        assert time.monotonic() - began < 15
        server.resume()
        assert store.size(SMALL_DIGEST) == len(SMALL)
    finally:
        server.stop()


class Saying(BaseHTTPRequestHandler):
    """Answers whatever is sent with one error, in S3's form."""

    said = (500, "InternalError")
    asked = 0

    def do_PUT(self) -> None:
        type(self).asked += 1
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        status, code = self.said
        body = f"<Error><Code>{code}</Code><Message>no</Message></Error>".encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Nothing."""


@pytest.mark.parametrize(
    ("status", "code", "error"),
    [
        (507, "XMinioStorageFull", StoreFull),
        (400, "XMinioAdminBucketQuotaExceeded", StoreFull),
        (403, "QuotaExceeded", StoreFull),
        (400, "BadDigest", ArtifactDamaged),
        (503, "SlowDown", StoreUnavailable),
        (500, "InternalError", StoreUnavailable),
        (403, "AccessDenied", StoreRefused),
        (301, "PermanentRedirect", StoreRefused),
        (400, "AuthorizationHeaderMalformed", StoreRefused),
    ],
)
def test_what_a_server_says_decides_about_the_error(
    status: int, code: str, error: type[Exception]
) -> None:
    """Such answers no server gives on request; what they are is S3's own documentation's."""
    handler = type("One", (Saying,), {"said": (status, code), "asked": 0})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        endpoint = f"http://127.0.0.1:{server.server_address[1]}"
        store = S3ArtifactStore(BucketPlace("bucket", endpoint=endpoint, region="us-east-1"))
        with pytest.raises(error) as told:
            store.write(SMALL_DIGEST, io.BytesIO(SMALL))
        assert type(told.value) is error
        server.shutdown()
    assert code in str(told.value) or "region" in str(told.value)
    assert handler.asked == (3 if status in (500, 503) else 1), "what is busy is asked again"


class Slow(BaseHTTPRequestHandler):
    """Takes its time to begin to read, but goes on all the while."""

    def do_PUT(self) -> None:
        left = int(self.headers["Content-Length"])
        for _ in range(20):
            left -= len(self.rfile.read(1 << 16))
            time.sleep(0.25)
        self.rfile.read(left)
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        """Nothing."""


@pytest.mark.slow
def test_a_slow_way_is_no_broken_one() -> None:
    content = LARGE[:BLOCK_BYTES]
    server = ThreadingHTTPServer(("127.0.0.1", 0), Slow, bind_and_activate=False)
    # Else the kernel would take it all in at once.
    server.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 16)
    server.server_bind()
    server.server_activate()
    with server:
        Thread(target=server.serve_forever, daemon=True).start()
        endpoint = f"http://127.0.0.1:{server.server_address[1]}"
        store = S3ArtifactStore(BucketPlace("bucket", endpoint=endpoint, region="us-east-1"))
        store.write(hashlib.sha256(content).hexdigest(), io.BytesIO(content))
        server.shutdown()


def test_a_link_opens_one_artifact_for_anybody(store: S3ArtifactStore) -> None:
    store.write(SMALL_DIGEST, io.BytesIO(SMALL))
    url = store.link(SMALL_DIGEST, filename="model.onnx", seconds=60)
    assert url is not None
    answer = httpx2.get(url, trust_env=False)
    assert answer.content == SMALL
    assert answer.headers["Content-Disposition"] == 'attachment; filename="model.onnx"'
    assert httpx2.get(url, headers={"Range": "bytes=1-2"}, trust_env=False).content == b"ep"
    assert "nobody-needs-to-guess-this" not in url
