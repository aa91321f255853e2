"""Downloads from a real HTTP server on loopback, which can also lie and hang up."""

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import torch

from search.errors import DataError
from search.tasks import DataSources, Mirror, Mnist
from search.tasks.download import fetch
from tests.search.mnist_files import write_mnist


@dataclass
class FileServer:
    folder: Path
    url: str = ""
    broken_transfers: int = 0
    """So many answers stop in the middle of the body."""
    requests: list[str] = field(default_factory=list)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[FileServer]:
    state = FileServer(tmp_path / "served")
    state.folder.mkdir()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            name = self.path.rsplit("/", 1)[-1]
            state.requests.append(name)
            file = state.folder / name
            if not file.is_file():
                self.send_error(404)
                return
            content = file.read_bytes()
            self.send_response(200)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            if state.broken_transfers > 0:
                state.broken_transfers -= 1
                self.wfile.write(content[: len(content) // 2])
                self.close_connection = True
            else:
                self.wfile.write(content)

        def log_message(self, format: str, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as http:
        state.url = f"http://127.0.0.1:{http.server_port}/mnist"
        thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        yield state
        http.shutdown()
        thread.join()


def test_the_four_files_are_downloaded_once_and_read(server: FileServer, tmp_path: Path) -> None:
    checksums = write_mnist(server.folder)
    sources = DataSources(
        cache=tmp_path / "cache", mirrors={"mnist": Mirror(server.url, checksums)}
    )
    reports: list[tuple[str, int, int]] = []

    def note(file: str, received: int, total: int) -> None:
        reports.append((file, received, total))

    splits = Mnist().load(sources, progress=note)
    local = Mnist().load(DataSources(cache=tmp_path / "other", folder=server.folder))
    assert torch.equal(splits.train.x, local.train.x)

    assert sorted(server.requests) == sorted(checksums)
    for name in checksums:
        size = (server.folder / name).stat().st_size
        received = [report[1] for report in reports if report[0] == name]
        assert received == sorted(received)
        assert received[-1] == size
        assert {report[2] for report in reports if report[0] == name} == {size}
    Mnist().load(sources)
    assert len(server.requests) == 4


def test_a_data_folder_without_the_files_leads_to_a_download(
    server: FileServer, tmp_path: Path
) -> None:
    checksums = write_mnist(server.folder, train=12, test=3)
    folder = tmp_path / "data"
    folder.mkdir()
    sources = DataSources(
        cache=tmp_path / "cache",
        folder=folder,
        mirrors={"mnist": Mirror(server.url, checksums)},
    )
    assert Mnist().load(sources).sizes["train"] == 10
    assert not list(folder.iterdir())


def test_a_wrong_checksum_is_refused_and_leaves_no_file(server: FileServer, tmp_path: Path) -> None:
    (server.folder / "numbers").write_bytes(b"not what was promised")
    with pytest.raises(DataError, match=r"numbers could not be fetched from .*/numbers: SHA256"):
        fetch({"numbers": "0" * 64}, tmp_path / "cache", url=server.url, retries=0)
    assert not list((tmp_path / "cache").iterdir())


def test_official_checksums_are_asked_of_a_mirror_that_names_none(
    server: FileServer, tmp_path: Path
) -> None:
    write_mnist(server.folder, train=12, test=3)
    sources = DataSources(cache=tmp_path / "cache", mirrors={"mnist": Mirror(server.url)})
    with pytest.raises(DataError, match=r"train-images-idx3-ubyte\.gz .*SHA256"):
        Mnist().load(sources)


@pytest.mark.parametrize("broken", [1, 2])
def test_a_broken_transfer_is_refused_or_tried_again(
    server: FileServer, tmp_path: Path, broken: int
) -> None:
    checksums = write_mnist(server.folder, train=12, test=3)
    name = "train-images-idx3-ubyte.gz"
    server.broken_transfers = broken
    wanted = {name: checksums[name]}
    if broken == 1:
        path = fetch(wanted, tmp_path / "cache", url=server.url, retries=1)[name]
        assert path.read_bytes() == (server.folder / name).read_bytes()
        return
    with pytest.raises(DataError, match=f"{name} could not be fetched from {server.url}/{name}"):
        fetch(wanted, tmp_path / "cache", url=server.url, retries=1)
    assert not list((tmp_path / "cache").iterdir())
    assert server.requests == [name, name]


def test_a_file_that_is_not_there_is_named(server: FileServer, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"nowhere could not be fetched from .*404"):
        fetch({"nowhere": "0" * 64}, tmp_path, url=server.url, retries=0)


def test_a_server_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"numbers could not be fetched from http://127\.0\.0\.1:9"):
        fetch({"numbers": "0" * 64}, tmp_path, url="http://127.0.0.1:9", retries=0)
