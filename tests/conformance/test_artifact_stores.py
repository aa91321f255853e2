"""What every artifact store promises, over every store that there is."""

import hashlib
import io
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import BinaryIO, cast

import pytest

from storage.artifacts import ArtifactStore, LocalArtifactStore, store_stream
from storage.errors import ArtifactDamaged, ArtifactNotFound
from tests.storage.records import START

STORES: tuple[Callable[[Path], ArtifactStore], ...] = (LocalArtifactStore,)

CONTENTS = (b"", b"\x00", b"text\r\n", bytes(range(256)) * 41 * 257)
STRANGE_IDS = (
    "",
    ".",
    "..",
    "../../etc/passwd",
    "/etc/passwd",
    "ab/" + "a" * 61,
    "../" + "a" * 61,
    "A" * 64,
    "a" * 63,
    "a" * 65,
    "a" * 64 + "\n",
    "a" * 32 + "\x00" + "a" * 31,
    "٣" * 64,
)


@pytest.fixture(params=STORES, ids=lambda store: store.__name__)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> ArtifactStore:
    return request.param(tmp_path / "artifacts")


class Trickle(io.RawIOBase):
    """A stream that gives a few bytes at a time and, when told to, breaks in the middle."""

    def __init__(self, content: bytes, *, breaks_after: int | None = None) -> None:
        self._content = io.BytesIO(content)
        self._breaks_after = breaks_after

    def read(self, size: int = -1) -> bytes:
        if self._breaks_after is not None and self._content.tell() >= self._breaks_after:
            raise ConnectionResetError("the sender went away")
        return self._content.read(min(7, size) if size >= 0 else 7)


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _read(store: ArtifactStore, artifact_id: str) -> bytes:
    with store.open_reader(artifact_id) as reader:
        return reader.read()


@pytest.mark.parametrize("content", CONTENTS, ids=len)
def test_what_is_written_is_read(store: ArtifactStore, content: bytes) -> None:
    store.write(_digest(content), io.BytesIO(content))
    assert _read(store, _digest(content)) == content
    assert store.size(_digest(content)) == len(content)


@pytest.mark.parametrize("content", CONTENTS, ids=len)
def test_a_stream_is_stored_under_its_digest(store: ArtifactStore, content: bytes) -> None:
    for expected in (None, _digest(content), _digest(content).upper()):
        record = store_stream(store, io.BytesIO(content), START, expected_sha256=expected)
        assert (record.sha256, record.size) == (_digest(content), len(content))
        assert record.created_at == START
    assert _read(store, _digest(content)) == content


def test_a_stream_that_trickles_is_stored_whole(store: ArtifactStore) -> None:
    record = store_stream(store, cast("BinaryIO", Trickle(b"checkpoint" * 10)), START)
    assert _read(store, record.sha256) == b"checkpoint" * 10


def test_a_reader_can_seek(store: ArtifactStore) -> None:
    record = store_stream(store, io.BytesIO(b"0123456789"), START)
    with store.open_reader(record.sha256) as reader:
        reader.seek(4)
        assert reader.read(3) == b"456"


def test_bytes_that_are_not_what_was_announced_are_not_stored(store: ArtifactStore) -> None:
    announced = _digest(b"whole")
    with pytest.raises(ArtifactDamaged, match=announced):
        store_stream(store, io.BytesIO(b"who"), START, expected_sha256=announced)
    with pytest.raises(ArtifactDamaged, match=announced):
        store.write(announced, io.BytesIO(b"who"))
    for digest in (announced, _digest(b"who")):
        with pytest.raises(ArtifactNotFound):
            store.open_reader(digest)


def test_a_stream_that_breaks_leaves_nothing(store: ArtifactStore) -> None:
    content = b"checkpoint" * 10
    for write in (
        lambda stream: store_stream(store, stream, START),
        lambda stream: store.write(_digest(content), stream),
    ):
        with pytest.raises(ConnectionResetError):
            write(cast("BinaryIO", Trickle(content, breaks_after=50)))
    for digest in (_digest(content), _digest(content[:50])):
        with pytest.raises(ArtifactNotFound):
            store.size(digest)


def test_writing_again_is_harmless_also_to_those_who_read(store: ArtifactStore) -> None:
    content = b"checkpoint" * 1000
    store.write(_digest(content), io.BytesIO(content))
    with store.open_reader(_digest(content)) as reader:
        beginning = reader.read(10)
        store.write(_digest(content), io.BytesIO(content))
        assert beginning + reader.read() == content
    assert _read(store, _digest(content)) == content


def test_a_wrong_body_does_not_harm_what_is_stored(store: ArtifactStore) -> None:
    store.write(_digest(b"right"), io.BytesIO(b"right"))
    with pytest.raises(ArtifactDamaged):
        store.write(_digest(b"right"), io.BytesIO(b"wrong"))
    assert _read(store, _digest(b"right")) == b"right"


def test_writers_of_the_same_bytes_at_once_all_succeed(store: ArtifactStore) -> None:
    content = b"checkpoint" * 20_000
    together = threading.Barrier(6)

    def write(_: int) -> None:
        together.wait()
        store.write(_digest(content), io.BytesIO(content))

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(write, range(6)))
    assert _read(store, _digest(content)) == content


def test_what_is_removed_is_gone(store: ArtifactStore) -> None:
    record = store_stream(store, io.BytesIO(b"old"), START)
    other = store_stream(store, io.BytesIO(b"kept"), START)
    store.remove(record.sha256)
    for call in (store.open_reader, store.size, store.remove):
        with pytest.raises(ArtifactNotFound, match=record.sha256):
            call(record.sha256)
    assert _read(store, other.sha256) == b"kept"


@pytest.mark.parametrize("artifact_id", STRANGE_IDS)
def test_an_id_that_is_no_digest_names_nothing(store: ArtifactStore, artifact_id: str) -> None:
    for call in (store.open_reader, store.size, store.remove):
        with pytest.raises(ArtifactNotFound):
            call(artifact_id)
    with pytest.raises(ArtifactDamaged):
        store.write(artifact_id, io.BytesIO(b"root::0:0::/:"))
