"""What every artifact store promises, over every store that there is."""

import hashlib
import io
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, BinaryIO, cast

import pytest

from storage.blobs.artifacts import ArtifactStore, store_stream
from storage.blobs.blocks import BLOCK_BYTES
from storage.blobs.bucket import S3ArtifactStore
from storage.blobs.folder import LocalArtifactStore
from storage.errors import ArtifactDamaged, ArtifactNotFound
from tests.s3_server import S3Server
from tests.storage.records import START

BLOCKS = b"".join(bytes([number]) * (BLOCK_BYTES - number) for number in range(3))
"""More than two blocks of a store that works in blocks, and none of them alike."""

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


def _folder(request: pytest.FixtureRequest) -> ArtifactStore:
    return LocalArtifactStore(request.getfixturevalue("tmp_path") / "artifacts")


def _bucket(request: pytest.FixtureRequest) -> ArtifactStore:
    request.getfixturevalue("aws_credentials")
    server: S3Server = request.getfixturevalue("s3_server")
    return S3ArtifactStore(server.place())


STORES: tuple[Callable[[pytest.FixtureRequest], ArtifactStore], ...] = (_folder, _bucket)


@pytest.fixture(params=STORES, ids=lambda store: store.__name__.strip("_"))
def store(request: pytest.FixtureRequest) -> ArtifactStore:
    return request.param(request)


class Trickle(io.RawIOBase):
    """A stream that gives a few bytes at a time and, when told to, breaks in the middle."""

    at_once = 7

    def __init__(self, content: bytes, *, breaks_after: int | None = None) -> None:
        self._content = io.BytesIO(content)
        self._breaks_after = breaks_after

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        if self._breaks_after is not None and self._content.tell() >= self._breaks_after:
            raise ConnectionResetError("the sender went away")
        return self._content.readinto(memoryview(buffer)[: self.at_once])

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        return self._content.seek(offset, whence)


class Blocked(Trickle):
    """The same, with more at a time."""

    at_once = 1 << 20


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _read(store: ArtifactStore, artifact_id: str) -> bytes:
    with store.open_reader(artifact_id) as reader:
        return reader.read()


@pytest.mark.parametrize("content", [*CONTENTS, BLOCKS], ids=len)
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


def test_a_reader_reads_from_anywhere_to_anywhere(store: ArtifactStore) -> None:
    digest = _digest(BLOCKS)
    store.write(digest, io.BytesIO(BLOCKS))
    with store.open_reader(digest) as reader:
        for place, length in (
            (2 * BLOCK_BYTES - 5, 10),
            (3, BLOCK_BYTES),
            (len(BLOCKS) - 7, 100),
            (len(BLOCKS), 1),
            (BLOCK_BYTES, 0),
            (0, 4),
        ):
            assert reader.seek(place) == place
            assert reader.read(length) == BLOCKS[place : place + length]
        reader.seek(-9, io.SEEK_END)
        assert reader.read() == BLOCKS[-9:]


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


@pytest.mark.parametrize("breaks", [False, True], ids=["wrong", "broken"])
def test_of_a_large_body_that_is_not_taken_nothing_is_left(
    store: ArtifactStore, breaks: bool
) -> None:
    stream = BLOCKS[:-1] if not breaks else BLOCKS
    body = Blocked(stream, breaks_after=2 * BLOCK_BYTES if breaks else None)
    with pytest.raises(ConnectionResetError if breaks else ArtifactDamaged):
        store.write(_digest(BLOCKS), cast("BinaryIO", body))
    with pytest.raises(ArtifactNotFound):
        store.size(_digest(BLOCKS))
    assert list(store.digests()) == []
    store.write(_digest(BLOCKS), io.BytesIO(BLOCKS))
    assert _read(store, _digest(BLOCKS)) == BLOCKS


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


def test_many_are_removed_at_once_and_those_that_are_not_there_do_not_matter(
    store: ArtifactStore,
) -> None:
    kept = store_stream(store, io.BytesIO(b"kept"), START)
    old = [store_stream(store, io.BytesIO(bytes([n])), START).sha256 for n in range(12)]
    store.remove_all([*old[:5], "0" * 64, *STRANGE_IDS, *old[5:]])
    assert list(store.digests()) == [kept.sha256]
    assert store.remove_all([]) == 0


def test_what_is_stored_is_listed_by_its_age(store: ArtifactStore) -> None:
    assert list(store.digests()) == []
    stored = {store_stream(store, io.BytesIO(bytes([n])), START).sha256 for n in range(4)}
    assert set(store.digests()) == stored
    assert set(store.digests(older_than_seconds=-2.0)) == stored
    assert list(store.digests(older_than_seconds=3600.0)) == []


def test_a_new_store_says_so_and_takes_bytes(store: ArtifactStore) -> None:
    store.check_access()
    assert store.is_new()
    store.check_room()
    assert store.is_new(), "looking is not storing"
    store_stream(store, io.BytesIO(b"first"), START)
    store.check_room()
    assert not store.is_new()
    assert store.sweep() == 0
    assert len(list(store.digests())) == 1


@pytest.mark.parametrize("artifact_id", STRANGE_IDS)
def test_an_id_that_is_no_digest_names_nothing(store: ArtifactStore, artifact_id: str) -> None:
    for call in (store.open_reader, store.size, store.remove):
        with pytest.raises(ArtifactNotFound):
            call(artifact_id)
    with pytest.raises(ArtifactDamaged):
        store.write(artifact_id, io.BytesIO(b"root::0:0::/:"))
