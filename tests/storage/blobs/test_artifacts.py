"""The local artifact store: what is on the disk, whatever happened to it and to its writers."""

import hashlib
import io
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from storage.blobs.artifacts import store_stream
from storage.blobs.folder import LocalArtifactStore
from storage.errors import ArtifactDamaged
from tests.storage.records import START

_WRITE_FOR_EVER = """
import io, sys, time
from pathlib import Path
from storage.blobs.folder import LocalArtifactStore

class Slow(io.RawIOBase):
    def read(self, size=-1):
        print("read", flush=True)
        time.sleep(0.01)
        return b"x" * size

LocalArtifactStore(Path(sys.argv[1])).write("ab" * 32, Slow())
"""


def _files(root: Path) -> list[Path]:
    return [path for path in root.rglob("*") if path.is_file()]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "artifacts"


def test_files_lie_under_the_first_two_characters_of_their_digest(root: Path) -> None:
    digest = hashlib.sha256(b"report").hexdigest()
    store_stream(LocalArtifactStore(root), io.BytesIO(b"report"), START)
    assert _files(root) == [root / digest[:2] / digest]


def test_nothing_is_left_beside_what_was_refused(root: Path) -> None:
    with pytest.raises(ArtifactDamaged):
        LocalArtifactStore(root).write("ab" * 32, io.BytesIO(b"something else"))
    assert _files(root) == []


@pytest.mark.parametrize("damage", [b"", b"report but shorte", b"report but not the same"])
def test_damaged_bytes_are_not_handed_out_and_are_mended_by_writing_again(
    root: Path, damage: bytes
) -> None:
    store = LocalArtifactStore(root)
    record = store_stream(store, io.BytesIO(b"report but longer"), START)
    (path,) = _files(root)
    path.write_bytes(damage)
    with pytest.raises(ArtifactDamaged, match=record.sha256):
        store.open_reader(record.sha256)
    store_stream(store, io.BytesIO(b"report but longer"), START)
    with store.open_reader(record.sha256) as reader:
        assert reader.read() == b"report but longer"


def test_a_writer_that_is_killed_leaves_nothing_visible_and_is_swept_up_after(
    root: Path,
) -> None:
    writer = subprocess.Popen(
        [sys.executable, "-c", _WRITE_FOR_EVER, str(root)], stdout=subprocess.PIPE, text=True
    )
    assert writer.stdout is not None
    for _ in range(3):
        assert writer.stdout.readline() == "read\n"
    store = LocalArtifactStore(root)
    assert store.sweep(older_than_seconds=-60) == 0, "the writer lives"
    writer.send_signal(signal.SIGKILL)
    writer.wait()
    writer.stdout.close()
    (left,) = _files(root)
    assert left.name != "ab" * 32
    kept = store_stream(store, io.BytesIO(b"kept"), START)
    assert store.sweep() == 0
    before = time.time() - 11
    for path in _files(root):
        os.utime(path, (before, before))
    assert store.sweep() == 1
    assert _files(root) == [root / kept.sha256[:2] / kept.sha256]


def test_sweeping_where_nothing_was_ever_written_is_harmless(root: Path) -> None:
    assert LocalArtifactStore(root).sweep() == 0
    assert not root.exists()
