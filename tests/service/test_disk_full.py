"""A disk that fills up: nothing is stored by halves, studies wait, and go on when there is room."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from search.room import DISK_FULL, RoomWatch
from search.steering import pause
from service.app import create_app
from storage.artifact_rows import ArtifactRows
from storage.artifacts import LocalArtifactStore
from storage.errors import StoreFull
from storage.records import StudyState, TrialState
from storage.studies import Studies
from tests.service.site import Site

_MEBIBYTE = 1 << 20


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 16 MiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=16m", "tmpfs", str(folder)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("only root can mount a small disk here")
    yield folder
    subprocess.run(["umount", "-l", str(folder)], check=True)


@pytest.fixture
def site(small_disk: Path) -> Iterator[Site]:
    """A server's data on the small disk, of which it keeps 4 MiB free."""
    site = Site(small_disk / "data", disk_reserve=4 * _MEBIBYTE)
    yield site
    site.close()


def fill(folder: Path, *, leave: int) -> Path:
    """A file that takes what is free but for so many bytes."""
    ballast = folder / "ballast"
    ballast.write_bytes(bytes(shutil.disk_usage(folder).free - leave))
    return ballast


def files_below(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


def test_a_store_on_a_full_disk_refuses_and_leaves_no_half_file(small_disk: Path) -> None:
    store = LocalArtifactStore(small_disk / "artifacts")
    site = Site(small_disk.parent / "elsewhere")
    kept = site.keep(os.urandom(6 * _MEBIBYTE))
    fill(small_disk, leave=3 * _MEBIBYTE)
    with site.store.open_reader(kept.sha256) as reader, pytest.raises(StoreFull, match="no room"):
        store.write(kept.sha256, reader)
    assert files_below(small_disk / "artifacts") == []
    (small_disk / "ballast").unlink()
    with site.store.open_reader(kept.sha256) as reader:
        store.write(kept.sha256, reader)
    store.open_reader(kept.sha256).close()
    site.close()


def test_an_upload_without_room_is_answered_507_and_taken_later(site, small_disk) -> None:
    study = site.study()
    site.run(study)
    site.trial(study, 0, state=TrialState.RUNNING)
    lease = site.lease(study, 0)
    application = create_app(site.settings)
    with TestClient(application, base_url="http://localhost:8080") as client:

        def put() -> tuple[int, str]:
            answer = client.put(
                lease.path("artifacts/checkpoint"), content=b"w" * 1000, headers=lease.headers
            )
            return answer.status_code, answer.text

        ballast = fill(small_disk, leave=3 * _MEBIBYTE)
        status, told = put()
        assert status == 507
        assert str(4 * _MEBIBYTE) in told
        with site.database.read() as session:
            assert ArtifactRows(session).of_trial(study.id, 0) == {}
        assert files_below(site.settings.artifacts_dir) == []
        beat = client.post(lease.path("heartbeat"), json={}, headers=lease.headers)
        assert beat.status_code == 200, "the reserve is there for the database"
        ballast.unlink()
        assert put()[0] == 200


def test_studies_wait_for_room_and_go_on_by_themselves(site, small_disk) -> None:
    folder, reserve = site.settings.artifacts_dir, site.settings.disk_reserve
    store = LocalArtifactStore(folder, reserve_bytes=reserve)
    watch = RoomWatch(site.database, store, owner="here")
    running, queued, by_user, finished = (site.study() for _ in range(4))
    site.run(running)
    site.run(by_user)
    pause(site.database, by_user.id, by="a user")
    site.finish(finished)

    def states() -> dict[str, StudyState]:
        with site.database.read() as session:
            found = [Studies(session).get(s.id) for s in (running, queued, by_user, finished)]
        return {study.id: study.state for study in found}

    before = states()
    watch.look()
    assert states() == before
    ballast = fill(small_disk, leave=3 * _MEBIBYTE)
    watch.look()
    waiting = {running.id: StudyState.PAUSED, queued.id: StudyState.PAUSED}
    assert states() == {**before, **waiting}
    with site.database.read() as session:
        reason = Studies(session).get(running.id).state_reason
    assert reason is not None
    assert reason.startswith(DISK_FULL)
    assert str(folder) in reason
    watch.look()
    ballast.unlink()
    watch.look()
    assert states() == before
