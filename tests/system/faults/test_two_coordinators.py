"""Two machines' coordinators on one PostgreSQL; one of them falls asleep, or dies.

Both run here, each with a data directory of its own, as two machines would have; the folder of
artifacts is one.
"""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx2
import psutil
import pytest
from sqlalchemy import text

from search.fronts.retention import Retention
from storage.blobs.folder import LocalArtifactStore
from storage.engine import Database
from tests.chaos.audit import audit_store, audit_study, bytes_without_a_row
from tests.conftest import PostgresServer
from tests.service.running import wait_until

LEASE_SECONDS = 6.0
SPEC: dict[str, Any] = {
    "task": {"kind": "digits"},
    "architectures": ["rnn"],
    "parametrizations": ["dense", "low_rank"],
    "space": {"hidden_size": 16, "batch_size": 32},
    "objectives": ["quality", "parameters"],
    "sampler": {"kind": "random"},
    "budget": {"trials": 2, "epochs": 120},
}


class Machine:
    """A coordinator with its data directory, and all that it starts."""

    def __init__(self, folder: Path, environment: dict[str, str]) -> None:
        self.folder = folder
        self.log = folder.with_suffix(".log")
        self._environment = environment | {"REFLECTORY_DATA_DIR": str(folder)}
        self.process = self.start()

    def start(self) -> "subprocess.Popen[bytes]":
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "service.cli", "coordinator"],
                env=os.environ | self._environment,
                stdout=log,
                stderr=log,
            )
        return self.process

    def send(self, sign: signal.Signals) -> None:
        top = psutil.Process(self.process.pid)
        for process in [top, *top.children(recursive=True)]:
            with suppress(psutil.NoSuchProcess):
                process.send_signal(sign)

    def says(self, word: str) -> bool:
        """Whether the coordinator or its agent has logged this."""
        return word in self.log.read_text()

    def workers_say(self, word: str) -> bool:
        return any(word in log.read_text() for log in (self.folder / "logs").glob("*.log"))

    def close(self) -> None:
        self.send(signal.SIGKILL)
        self.process.wait()


class Site:
    """An API over PostgreSQL, and two machines that coordinate."""

    def __init__(self, folder: Path, server: PostgresServer) -> None:
        self.urls = server.create_database(), server.create_database()
        self.database = Database(self.urls[0])
        self.database.migrate()
        self.artifacts = folder / "artifacts"
        with socket.create_server(("127.0.0.1", 0)) as listener:
            port = listener.getsockname()[1]
        environment = {
            "REFLECTORY_DATABASE_URL": self.urls[0],
            "REFLECTORY_OPTUNA_URL": self.urls[1],
            "REFLECTORY_ARTIFACTS_DIR": str(self.artifacts),
            "REFLECTORY_LEASE_SECONDS": str(LEASE_SECONDS),
            "REFLECTORY_PORT": str(port),
            "REFLECTORY_WORKERS": "1",
        }
        self.http = httpx2.Client(base_url=f"http://127.0.0.1:{port}", timeout=300)
        self._api = subprocess.Popen(
            [sys.executable, "-m", "service.cli", "api"],
            env={**os.environ, **environment, "REFLECTORY_DATA_DIR": str(folder / "api")},
        )
        self.machines = [Machine(folder / name, environment) for name in ("one", "two")]
        wait_until(self._answers, what="the API")

    def _answers(self) -> bool:
        with suppress(httpx2.TransportError):
            return self.http.get("/healthz").status_code == 200
        return False

    def submit(self, seed: int) -> str:
        answer = self.http.post("/v1/studies", json={**SPEC, "seed": seed})
        assert answer.status_code == 202, answer.text
        return str(answer.json()["id"])

    def epochs(self, study_id: str) -> int:
        progress = self.http.get(f"/v1/studies/{study_id}").json()["progress"]
        return int(progress["epochs_trained"])

    def owner(self, study_id: str) -> Machine | None:
        """Whose study it is."""
        with self.database.read() as session:
            query = text("SELECT owner FROM study WHERE id = :id")
            owner = session.scalar(query, {"id": study_id})
        return next((m for m in self.machines if str(owner).endswith(f":{m.folder}")), None)

    def audit(self, study_id: str) -> None:
        wait_until(
            lambda: self.http.get(f"/v1/studies/{study_id}").json()["state"] == "finished",
            what=f"the end of study {study_id}; logs {[str(m.log) for m in self.machines]}",
            seconds=300,
        )
        front = self.http.get(f"/v1/studies/{study_id}/front").json()
        assert audit_study(self.database, self.urls[1], study_id, front) == {"complete": 2}

    def close(self) -> None:
        self.http.close()
        for machine in self.machines:
            machine.close()
        self._api.kill()
        self._api.wait()
        self.database.dispose()


@pytest.fixture(scope="module")
def site(
    tmp_path_factory: pytest.TempPathFactory, postgres_server: PostgresServer
) -> Iterator[Site]:
    made = Site(tmp_path_factory.mktemp("two"), postgres_server)
    yield made
    made.close()


def moved(site: Site, study_id: str, sign: signal.Signals) -> Machine:
    """Whose study it was, before a signal to it and all below it made it another's."""
    wait_until(lambda: site.epochs(study_id) > 20, what="some epochs")
    first = site.owner(study_id)
    assert first is not None
    first.send(sign)
    # Two leases, unless it was stopped within a transaction: the database ends that after a minute.
    wait_until(lambda: site.owner(study_id) not in (first, None), what="another owner", seconds=240)
    seen = site.epochs(study_id)
    wait_until(lambda: site.epochs(study_id) > seen, what="an epoch of the other's")
    return first


@pytest.mark.slow
def test_the_studies_of_a_machine_that_sleeps_move_and_its_late_words_are_refused(
    site: Site,
) -> None:
    """Its worker comes back in the middle of a trial that another attempt has by now."""
    study_id = site.submit(1)
    first = moved(site, study_id, signal.SIGSTOP)
    late = workers(first)
    assert late
    first.send(signal.SIGCONT)
    wait_until(lambda: first.says("words were refused"), what="the late worker's refusal")
    wait_until(lambda: not any(one.is_running() for one in late), what="the late worker's end")
    site.audit(study_id)
    assert first.process.poll() is None
    assert not first.workers_say("Traceback")


@pytest.mark.slow
def test_the_studies_of_a_machine_that_dies_move_and_it_can_come_back(site: Site) -> None:
    study_id = site.submit(2)
    first = moved(site, study_id, signal.SIGKILL)
    first.process.wait()
    first.start()
    site.audit(study_id)
    store = LocalArtifactStore(site.artifacts)
    retention = Retention(site.database, store)

    def swept() -> bool:
        retention.tidy()
        retention.sweep(older_than_seconds=0.0)
        # Both machines live, and the files of the front are still being made.
        return not bytes_without_a_row(site.database, site.artifacts)

    wait_until(swept, what="a row for all that is stored")
    assert audit_store(site.database, site.artifacts) > 0


def workers(machine: Machine) -> list[psutil.Process]:
    """The slots' processes of a machine: children of its fork server."""
    found: list[psutil.Process] = []
    for process in psutil.Process(machine.process.pid).children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            parent = process.parent()
            if parent is not None and any("fork_server" in word for word in parent.cmdline()):
                found.append(process)
    return found
