"""What a killed server leaves of an upload is gone after the next start; the living is left be."""

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from search.uploads.uploads import UploadLimits
from service.api.datasets.intake import DatasetIntake
from service.api.uploads.folders import UploadFolders
from service.app import create_app
from storage.errors import ArtifactNotFound
from storage.repositories.artifact_rows import ArtifactRows
from tests.service.running import Server, wait_until
from tests.service.site import Site, sha256

_UPLOADER = """
import sys, time
from pathlib import Path
from service.api.uploads.folders import UploadFolders

folders = UploadFolders(Path(sys.argv[1]))
with folders.open() as folder:
    (folder / "file").write_bytes(b"half of a file")
    folders.plan(folder, sys.argv[2:])
    print(folder, flush=True)
    time.sleep(60)
"""


@pytest.fixture
def intake(site: Site) -> DatasetIntake:
    return DatasetIntake(
        site.database, site.store, folder=site.settings.uploads_dir, limits=UploadLimits()
    )


def uploader(site: Site, *digests: str) -> tuple[subprocess.Popen[str], Path]:
    """A process in the middle of an upload that has stored these artifacts."""
    process = subprocess.Popen(
        [sys.executable, "-c", _UPLOADER, str(site.settings.uploads_dir), *digests],
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[3],
    )
    assert process.stdout is not None
    return process, Path(process.stdout.readline().strip())


def test_a_sweep_removes_what_a_killed_upload_has_stored_and_no_row_names(
    site: Site, intake: DatasetIntake
) -> None:
    orphan = site.keep(b"stored, and then the server was killed")
    named = site.keep(b"something that a row names")
    with site.database.write() as session:
        ArtifactRows(session).add(named)
    never = sha256(b"was not written any more")
    process, folder = uploader(site, orphan.sha256, named.sha256, never)
    with process:
        assert folder.exists()
        intake.sweep()
        assert folder.exists(), "the upload lives"
        assert site.store.size(orphan.sha256)
        os.kill(process.pid, signal.SIGKILL)
        process.wait(300)
    with TestClient(create_app(site.settings)):
        assert not folder.exists()
    assert site.store.size(named.sha256) == named.size
    with pytest.raises(ArtifactNotFound):
        site.store.size(orphan.sha256)


def test_a_folder_is_gone_when_its_upload_ends_well_or_badly(tmp_path: Path) -> None:
    folders = UploadFolders(tmp_path / "uploads")
    assert list(folders.abandoned()) == []
    with folders.open() as first, folders.open() as second:
        (first / "file").write_bytes(b"x")
        assert first != second
        assert list(folders.abandoned()) == []
    with pytest.raises(FileNotFoundError), folders.open() as failed:
        (failed / "missing").read_bytes()
    assert list((tmp_path / "uploads").iterdir()) == []


@pytest.mark.slow
def test_a_server_that_was_killed_in_an_upload_has_swept_up_when_it_is_ready_again(
    tmp_path: Path,
) -> None:
    server = Server(tmp_path / "data", workers=1)
    uploads = server.data_dir / "uploads"
    try:
        server.start()
        url = server.http.base_url
        with socket.create_connection((url.host, url.port or 80)) as connection:
            connection.sendall(
                b"POST /v1/datasets HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000\r\n"
                b"Content-Type: multipart/form-data; boundary=xyz\r\n\r\n"
                b'--xyz\r\nContent-Disposition: form-data; name="file"; filename="a.csv"\r\n\r\n'
                b"label,1,2\n"
            )
            wait_until(lambda: list(uploads.glob("*/file")), what="an upload that has begun")
            server.kill_everything()
        assert list(uploads.iterdir())
        server.start()
        assert list(uploads.iterdir()) == []
    finally:
        server.close()
