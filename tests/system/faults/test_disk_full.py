"""A disk that fills up: nothing is stored by halves, studies wait, and go on when there is room."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from sqlalchemy import text
from starlette.testclient import TestClient

from search.fronts.retention import Retention
from search.running import store_watch
from search.running.store_watch import StoreWatch
from search.studies.commands import pause
from service.app import create_app
from storage.blobs.folder import LocalArtifactStore
from storage.engine import Database
from storage.errors import StoreFull
from storage.records import StudyState, TrialState
from storage.repositories.artifact_rows import ArtifactRows
from storage.repositories.studies import Studies
from storage.repositories.trials import Trials
from tests.chaos.audit import audit_store, audit_study
from tests.chaos.small_disk import fill, mount, unmount
from tests.search.honest_words import files
from tests.service.machines import beat
from tests.service.running import Server, wait_until
from tests.service.site import Site
from tests.service.uploading import CSV
from tests.system.faults.test_faults import SMALL

_MEBIBYTE = 1 << 20


@contextmanager
def disk(folder: Path, mebibytes: int) -> Iterator[Path]:
    """A disk of its own, mounted there."""
    if not mount(folder, mebibytes):
        pytest.skip("only root can mount a small disk here")
    try:
        yield folder
    finally:
        unmount(folder)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 16 MiB."""
    with disk(tmp_path / "disk", 16) as folder:
        yield folder


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    """All that it keeps is on a disk of 64 MiB, of which 8 are kept free; its log is elsewhere."""
    with disk(tmp_path / "disk", 64) as folder:
        reserve = {"REFLECTORY_DISK_RESERVE": str(8 * _MEBIBYTE)}
        running = Server(folder / "data", workers=1, environment=reserve)
        running.log = tmp_path / "server.log"
        yield running.start()
        running.close()


@pytest.fixture
def site(small_disk: Path) -> Iterator[Site]:
    """A server's data on the small disk, of which it keeps 4 MiB free."""
    site = Site(small_disk / "data", disk_reserve=4 * _MEBIBYTE)
    yield site
    site.close()


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
    checkpoint = files(lease.job)["checkpoint"]
    application = create_app(site.settings)
    with TestClient(application, base_url="http://localhost:8080") as client:

        def put() -> tuple[int, str]:
            answer = client.put(
                lease.path("artifacts/checkpoint"), content=checkpoint, headers=lease.headers
            )
            return answer.status_code, answer.text

        ballast = fill(small_disk, leave=3 * _MEBIBYTE)
        status, told = put()
        assert status == 507
        assert str(4 * _MEBIBYTE) in told
        with site.database.read() as session:
            assert ArtifactRows(session).of_trial(study.id, 0) == {}
        assert files_below(site.settings.artifacts_dir) == []
        assert beat(client, lease) == [], "the reserve is there for the database"
        ballast.unlink()
        assert put()[0] == 200


def test_studies_wait_for_room_and_go_on_by_themselves(site, small_disk) -> None:
    folder, reserve = site.settings.artifacts_dir, site.settings.disk_reserve
    store = LocalArtifactStore(folder, reserve_bytes=reserve)
    watch = StoreWatch(site.database, store, owner="here")
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
    assert reason.startswith("disk full: ")
    assert str(folder) in reason
    watch.look()
    ballast.unlink()
    watch.look()
    assert states() == before


def test_paused_trials_are_let_go_before_their_study_waits(
    site: Site, small_disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = LocalArtifactStore(
        site.settings.artifacts_dir, reserve_bytes=site.settings.disk_reserve
    )
    watch, study = StoreWatch(site.database, store, owner="here"), site.study()
    site.run(study)
    site.trial(study, 0, state=TrialState.RUNNING)
    promise = {1: 0.4, 2: 0.1, 3: 0.5, 4: 0.2, 5: 0.3}
    for number in promise:
        site.trial(study, number, state=TrialState.PAUSED)
    with site.database.write() as session:
        Trials(session).set_stretches(study.id, {n: {"index": promise[n]} for n in promise})
    fill(small_disk, leave=3 * _MEBIBYTE)

    def looked() -> tuple[StudyState, list[int]]:
        watch.look()
        with site.database.read() as session:
            ended = Trials(session).list(study.id, TrialState.STOPPED)
            assert {trial.reason for trial in ended} == {"let go at epoch 0 for room"}
            return Studies(session).get(study.id).state, [trial.number for trial in ended]

    assert looked() == (StudyState.RUNNING, [2, 4])
    assert looked() == (StudyState.RUNNING, [2, 4]), "their states may be leaving just now"
    monkeypatch.setattr(store_watch, "_ROOM_SECONDS", 0.0)
    assert looked() == (StudyState.RUNNING, [2, 4, 5])
    assert looked() == (StudyState.PAUSED, [2, 4, 5]), "two stay for each that runs"


@pytest.mark.slow
def test_a_whole_study_waits_on_a_full_disk_and_goes_on_when_there_is_room(server: Server) -> None:
    """First the reserve is touched, then there is not a byte left, for the database either."""
    folder = server.data_dir.parent
    spec = {**SMALL, "budget": {"trials": 2, "epochs": 120}}
    study_id = server.submit(spec)
    wait_until(lambda: server.study(study_id)["progress"]["epochs_trained"] > 10, what="epochs")
    first = fill(folder, leave=4 * _MEBIBYTE)
    wait_until(lambda: server.study(study_id)["state"] == "paused", what="a study that waits")
    reason = server.study(study_id)["state_reason"]
    assert reason.startswith("disk full: ")
    assert str(8 * _MEBIBYTE) in reason
    upload = server.http.post("/v1/datasets", files={"file": ("a.csv", CSV)})
    assert upload.status_code == 507, upload.text
    second = fill(folder, leave=0, name="more")
    answer = server.http.post("/v1/studies", json=spec)
    assert answer.status_code in (202, 503), answer.text
    for ballast in (first, second):
        ballast.unlink()
    assert server.wait(study_id, seconds=300)["state"] == "finished"
    assert not server.has_ended, "it needs no operator"
    if answer.status_code == 202:
        server.wait(answer.json()["id"], seconds=300)
    front = server.get(f"/v1/studies/{study_id}/front")
    assert server.stop() == 0
    database = Database(f"sqlite:///{server.data_dir / 'reflectory.db'}")
    with database.read() as session:
        assert session.scalar(text("PRAGMA integrity_check")) == "ok"
    optuna_url = f"sqlite:///{server.data_dir / 'optuna.db'}"
    assert audit_study(database, optuna_url, study_id, front) == {"complete": 2}
    artifacts = server.data_dir / "artifacts"
    retention = Retention(database, LocalArtifactStore(artifacts))
    retention.tidy()
    retention.sweep(older_than_seconds=0.0)
    assert audit_store(database, artifacts) > 0
    database.dispose()
