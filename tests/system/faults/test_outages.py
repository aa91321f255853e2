"""The database or the artifact store is gone for a while: 503 meanwhile, and nothing is lost."""

import re
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx2
import psutil
import pytest
from starlette.testclient import TestClient

from search.running.store_watch import StoreWatch
from storage.blobs.folder import LocalArtifactStore
from storage.engine import Database
from storage.errors import ArtifactNotFound, StoreUnavailable
from storage.records import StudyState
from storage.repositories.metrics import Metrics
from storage.repositories.studies import Studies
from tests.chaos.audit import audit_study
from tests.chaos.postgres import MortalPostgres
from tests.service.running import Server, wait_until
from tests.service.site import Site
from tests.service.uploading import CSV
from tests.system.faults.test_faults import SMALL

GONE_SECONDS = 10.0
"""What a site may expect to get over without an operator."""

SPEC = {**SMALL, "budget": {"trials": 2, "epochs": 150}}
ABSENT = "0" * 64


@pytest.fixture
def postgres() -> Iterator[MortalPostgres]:
    running = MortalPostgres(Path(tempfile.mkdtemp(prefix="reflectory-postgres-")))
    yield running
    running.stop()


def come_again(answer: httpx2.Response) -> bool:
    """Whether a 503 says so as it should; any other answer is a false one."""
    if answer.status_code != 503:
        return False
    assert int(answer.headers["Retry-After"]) > 0
    assert answer.headers["Content-Type"] == "application/problem+json"
    return True


def after_some_epochs(server: Server) -> str:
    study_id = server.submit(SPEC)
    wait_until(lambda: server.study(study_id)["progress"]["epochs_trained"] > 10, what="epochs")
    return study_id


def gone_for(seconds: float, ask: Callable[[], Any]) -> None:
    """Ask all the time."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        ask()
        time.sleep(0.2)


@pytest.mark.slow
def test_a_database_that_is_gone_for_a_while_heals_and_loses_nothing(
    tmp_path: Path, postgres: MortalPostgres
) -> None:
    urls = postgres.create_database(), postgres.create_database()
    environment = {"REFLECTORY_DATABASE_URL": urls[0], "REFLECTORY_OPTUNA_URL": urls[1]}
    server = Server(tmp_path / "data", workers=1, environment=environment)
    try:
        server.start()
        study_id = after_some_epochs(server)
        page, one = "/v1/studies", f"/v1/studies/{study_id}"

        def ask() -> None:
            assert server.http.get("/healthz").status_code == 200, "the process itself lives"
            for answer in (
                server.http.get(page),
                server.http.get(one),
                server.http.get(f"{one}/front"),
                server.http.get(f"{one}/events"),
                server.http.post(page, json=SPEC),
                server.http.get("/readyz"),
            ):
                assert come_again(answer), (answer.request.url, answer.status_code, answer.text)

        postgres.kill()
        gone_for(GONE_SECONDS, ask)
        postgres.start()
        wait_until(lambda: server.http.get("/readyz").status_code == 200, what="a ready server")
        assert server.wait(study_id, seconds=300)["state"] == "finished"
        assert not server.has_ended, "it needs no operator"
        assert [study["id"] for study in server.get(page)["items"]] == [study_id]
        front = server.get(f"{one}/front")
        assert server.stop() == 0
        database = Database(urls[0])
        assert audit_study(database, urls[1], study_id, front) == {"complete": 2}
        database.dispose()
    finally:
        server.close()


@pytest.mark.slow
def test_a_store_that_is_gone_for_a_while_heals_and_loses_nothing(tmp_path: Path) -> None:
    """The folder of checkpoints is moved away, as a disk that comes off, and back."""
    server = Server(tmp_path / "data", workers=1)
    try:
        server.start()
        finished = server.submit({**SMALL, "budget": {"trials": 1, "epochs": 1}})
        server.wait(finished)
        checkpoint = f"/v1/studies/{finished}/trials/0/checkpoint"
        study_id = after_some_epochs(server)
        store, away = server.data_dir / "artifacts", server.data_dir / "away"

        def ask() -> None:
            assert come_again(server.http.get(checkpoint))
            assert come_again(server.http.post("/v1/datasets", files={"file": ("a.csv", CSV)}))
            assert server.http.get(f"/v1/studies/{finished}/front").status_code == 200

        store.rename(away)
        gone_for(GONE_SECONDS, ask)
        ready = server.http.get("/readyz")
        assert come_again(ready)
        assert [fault["path"] for fault in ready.json()["errors"]] == ["store"]
        held = server.study(study_id)
        assert (held["state"], held["state_reason"][:12]) == ("paused", "store away: ")
        assert not store.exists(), "nothing is written where the old folder will hide it"
        away.rename(store)
        assert server.wait(study_id, seconds=300)["state"] == "finished"
        assert server.http.get(checkpoint).status_code == 200
        assert server.http.get("/readyz").status_code == 200
        front = server.get(f"/v1/studies/{study_id}/front")
        assert server.stop() == 0
        database = Database(f"sqlite:///{server.data_dir / 'reflectory.db'}")
        optuna_url = f"sqlite:///{server.data_dir / 'optuna.db'}"
        assert audit_study(database, optuna_url, study_id, front) == {"complete": 2}
        database.dispose()
    finally:
        server.close()


@pytest.mark.slow
def test_training_goes_on_while_the_api_is_away_and_is_reported_later(tmp_path: Path) -> None:
    """Away for two lease times, and nobody starts another one."""
    lease_seconds, trials, epochs = 4.0, 3, 50
    server = Server(
        tmp_path / "data", workers=2, environment={"REFLECTORY_LEASE_SECONDS": str(lease_seconds)}
    )
    database = Database(f"sqlite:///{server.data_dir / 'reflectory.db'}")

    def trained() -> int:
        logs = [log.read_text() for log in (server.data_dir / "logs").glob("*.log")]
        return sum(len(re.findall(r"epoch \d+: validation", log)) for log in logs)

    def stored() -> int:
        with database.read() as session:
            return sum(len(Metrics(session).curve(study_id, one)) for one in range(trials))

    try:
        server.start()
        space = {"hidden_size": 16, "batch_size": 16}
        budget = {"trials": trials, "epochs": epochs}
        study_id = server.submit({**SMALL, "space": space, "budget": budget})
        wait_until(lambda: server.study(study_id)["progress"]["epochs_trained"] > 10, what="epochs")
        supervisor = psutil.Process(server.pid)
        (api,) = (one for one in supervisor.children() if "api" in one.cmdline())
        agent = next(one for one in supervisor.children() if "agent" in one.cmdline())
        supervisor.suspend()
        try:
            api.kill()
            wait_until(lambda: api.status() == psutil.STATUS_ZOMBIE, what="the end of the API")
            known, slots = stored(), server.workers_at_work()
            time.sleep(2 * lease_seconds)
            wait_until(lambda: trained() > known + 30, what="epochs that nobody hears of")
            assert stored() == known
            assert slots
            assert all(slot.is_running() for slot in slots)
        finally:
            supervisor.send_signal(signal.SIGCONT)
        wait_until(lambda: server.answers("/healthz") == 200, what="another API process")
        assert server.wait(study_id)["state"] == "finished"
        assert agent.is_running()
        attempts = [[a["state"] for a in one["attempts"]] for one in server.trials(study_id)]
        assert attempts == [["ended"]] * trials, "nothing was begun again"
        assert trained() == stored() == trials * epochs
        front = server.get(f"/v1/studies/{study_id}/front")
        assert server.stop() == 0
        optuna_url = f"sqlite:///{server.data_dir / 'optuna.db'}"
        assert audit_study(database, optuna_url, study_id, front) == {"complete": trials}
    finally:
        database.dispose()
        server.close()


def test_studies_wait_for_a_store_and_go_on_by_themselves(site: Site) -> None:
    site.keep(b"anything")
    store = LocalArtifactStore(site.settings.artifacts_dir)
    watch = StoreWatch(site.database, store, owner="here")
    study = site.study()
    site.run(study)

    def state() -> StudyState:
        with site.database.read() as session:
            return Studies(session).get(study.id).state

    away = site.settings.artifacts_dir.with_name("away")
    site.settings.artifacts_dir.rename(away)
    watch.look()
    assert state() == StudyState.PAUSED
    away.rename(site.settings.artifacts_dir)
    watch.look()
    assert state() == StudyState.RUNNING


@pytest.mark.parametrize("gone", ["moved", "a file"])
def test_a_folder_that_is_gone_is_told_from_bytes_that_are_not_there(
    site: Site, client: TestClient, gone: str
) -> None:
    kept = site.keep(b"some bytes").sha256
    root = site.settings.artifacts_dir
    store = LocalArtifactStore(root)
    with pytest.raises(ArtifactNotFound):
        store.size(ABSENT)
    root.rename(root.with_name("away"))
    if gone == "a file":
        root.write_bytes(b"")
    for call in (store.open_reader, store.size, store.remove):
        with pytest.raises(StoreUnavailable, match=str(root)):
            call(kept)
    with pytest.raises(StoreUnavailable, match=str(root)):
        store.check_room()
    assert not root.is_dir()
