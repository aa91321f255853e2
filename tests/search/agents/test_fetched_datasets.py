"""Workers get uploads from a real API over HTTP, whole or not at all, once for a machine."""

import hashlib
import io
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BufferedRandom
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from search.agents.agent_client import AgentLink, NoAnswer
from search.agents.attempt_line import AttemptLine
from search.agents.fetched_datasets import FetchedDatasets
from search.errors import DataError, SearchError
from search.uploads import container
from search.uploads.arrays import write_arrays
from tests.patience import wait_while_it_moves
from tests.search.uploads.uploaded import gestures

MACHINE = "a" * 16
CONTENT = container.to_bytes(gestures()) * 40


class FromAgent:
    """An attempt's line as far as data sets go, with its agent's calls behind it."""

    def __init__(self, url: str) -> None:
        self._url = url

    def get_dataset(self, dataset_id: str, out: BufferedRandom) -> bool:
        """Fetch it, again after each transfer that breaks off, as an agent does."""
        with AgentLink(self._url, MACHINE, key=None) as link:
            while True:
                try:
                    return link.get_dataset("a1", dataset_id, Path(str(out.name)), token="token")
                except NoAnswer:
                    continue


def shelf_of(url: str, folder: Path) -> FetchedDatasets:
    return FetchedDatasets(cast(AttemptLine, FromAgent(url)), folder)


class Uploads(ThreadingHTTPServer):
    """Serves one upload; `breaks` answers end in the middle, `held` ones wait there."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.asked: list[str | None] = []
        """The `Range` of each request."""
        self.breaks = 0
        self.status = 200
        self.content = CONTENT
        self.digest = hashlib.sha256(CONTENT).hexdigest()
        self.held = threading.Event()
        self.held.set()
        self.url = f"http://127.0.0.1:{self.server_port}"

    def handle_error(self, request: Any, client_address: Any) -> None:
        # A killed client breaks its connection.
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        server = self.server
        assert isinstance(server, Uploads)
        wanted = self.headers.get("Range")
        server.asked.append(wanted)
        assert self.path == f"/v1/agents/{MACHINE}/attempts/a1/datasets/up"
        assert self.headers["Lease-Token"] == "token"
        start = int(wanted.removeprefix("bytes=").rstrip("-")) if wanted else 0
        content = server.content[start:] if server.status == 200 else b"no"
        self.send_response(server.status if start == 0 else 206)
        self.send_header("Content-Length", str(len(content)))
        self.send_header("Content-SHA256", server.digest)
        self.end_headers()
        middle = len(content) // 2
        self.wfile.write(content[:middle])
        self.wfile.flush()
        if server.breaks > 0:
            server.breaks -= 1
            self.close_connection = True
            return
        server.held.wait(600)
        self.wfile.write(content[middle:])

    def log_message(self, format: str, *args: object) -> None:  # noqa: ARG002
        return


@pytest.fixture
def uploads() -> Iterator[Uploads]:
    with Uploads() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server
        server.held.set()
        server.shutdown()
        thread.join()


@pytest.fixture
def shelf(uploads: Uploads, tmp_path: Path) -> FetchedDatasets:
    return shelf_of(uploads.url, tmp_path)


def files(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file() and path.suffix != ".lock")


def test_an_upload_is_fetched_once_and_is_the_same_bytes(
    uploads: Uploads, shelf: FetchedDatasets, tmp_path: Path
) -> None:
    for _ in range(3):
        with shelf.open("up") as stream:
            assert stream.read() == CONTENT
    assert shelf.digest("up") == uploads.digest
    assert uploads.asked == [None]
    (file,) = files(tmp_path)
    assert "up" not in file.name.split(".")


def test_arrays_and_samples_are_told_apart_by_their_bytes(uploads: Uploads, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="holds samples to train on"):
        shelf_of(uploads.url, tmp_path / "samples").arrays("up")
    stream = io.BytesIO()
    write_arrays(stream, {"frames": np.ones((7, 5), dtype=np.float32)})
    uploads.content = stream.getvalue()
    uploads.digest = hashlib.sha256(uploads.content).hexdigest()
    shelf = shelf_of(uploads.url, tmp_path / "arrays")
    facts = shelf.arrays("up")
    assert (facts.samples, facts.arrays[0].name, facts.arrays[0].shape) == (7, "frames", (5,))
    with pytest.raises(DataError, match="holds arrays for a network's inputs"):
        shelf.facts("up")


def test_a_transfer_that_breaks_goes_on_where_it_was(
    uploads: Uploads, shelf: FetchedDatasets
) -> None:
    uploads.breaks = 2
    assert shelf.digest("up") == uploads.digest
    half = len(CONTENT) // 2
    rest = half + (len(CONTENT) - half) // 2
    assert uploads.asked == [None, f"bytes={half}-", f"bytes={rest}-"]


def test_bytes_that_are_not_those_that_the_service_names_are_not_kept(
    uploads: Uploads, shelf: FetchedDatasets, tmp_path: Path
) -> None:
    uploads.digest = "0" * 64
    with pytest.raises(SearchError, match="arrived with sha256"):
        shelf.digest("up")
    assert all(path.suffix == ".unfinished" for path in files(tmp_path))


def test_what_an_ended_attempt_still_receives_harms_nobody(
    uploads: Uploads, shelf: FetchedDatasets, tmp_path: Path
) -> None:
    """Its agent's thread writes on, though nobody holds the lock any more."""
    folder = tmp_path / "uploads"
    folder.mkdir()
    name = hashlib.sha256(b"up").hexdigest()
    with (folder / f"{name}.earlier.unfinished").open("wb", buffering=0) as still_open:
        still_open.write(b"the first part")
        assert shelf.digest("up") == uploads.digest
        still_open.write(b"the rest")
    assert uploads.asked == [None]
    (file,) = files(tmp_path)
    assert file.read_bytes() == CONTENT


def test_an_upload_that_was_deleted_is_a_fault_of_the_data(
    uploads: Uploads, shelf: FetchedDatasets, tmp_path: Path
) -> None:
    uploads.status = 404
    with pytest.raises(DataError, match="no data set up any more: it was deleted"):
        shelf.digest("up")
    assert files(tmp_path) == []


@pytest.mark.parametrize("status", [401, 409])
def test_nothing_is_given_out_for_a_lease_that_is_over(
    uploads: Uploads, shelf: FetchedDatasets, status: int
) -> None:
    uploads.status = status
    with pytest.raises(SearchError, match=str(status)):
        shelf.digest("up")


def test_a_killed_worker_leaves_nothing_that_looks_whole_and_the_next_one_goes_on(
    uploads: Uploads, tmp_path: Path
) -> None:
    uploads.held.clear()
    command = [sys.executable, "-m", __name__, uploads.url, str(tmp_path)]
    first = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    wait_until(lambda: len(uploads.asked) == 1)
    wait_until(lambda: any(path.stat().st_size > 0 for path in files(tmp_path)))
    second = subprocess.Popen(command, stdout=subprocess.PIPE)
    # The second waits for the first one's lock, and asks for nothing meanwhile.
    wait_until(lambda: waits_for_a_lock(second.pid))
    assert len(uploads.asked) == 1
    os.kill(first.pid, signal.SIGKILL)
    first.wait()
    assert all(path.suffix == ".unfinished" for path in files(tmp_path))
    uploads.held.set()
    said, _ = second.communicate(timeout=600)
    assert second.returncode == 0
    assert said.decode().strip() == uploads.digest
    assert uploads.asked == [None, None]
    (file,) = files(tmp_path)
    assert file.read_bytes() == CONTENT


def waits_for_a_lock(pid: int) -> bool:
    """Whether the kernel lists this process among those that a lock is refused to."""
    waiting = [line.split() for line in Path("/proc/locks").read_text().splitlines()]
    return any(words[1] == "->" and words[5] == str(pid) for words in waiting)


def wait_until(holds: Any) -> None:
    wait_while_it_moves(holds, what="a condition", pause=0.01)


if __name__ == "__main__":
    sys.stdout.write(shelf_of(sys.argv[1], Path(sys.argv[2])).digest("up") + "\n")
