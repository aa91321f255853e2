"""The coordinator dies between Optuna and our rows, at each of the points there are.

And is started again.

API, coordinator, fork server, workers and both databases are the real ones.
"""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Generator
from contextlib import suppress
from pathlib import Path

import httpx2
import optuna
import pytest

from storage.engine import Database
from storage.exchanges import Exchanges
from storage.records import TrialState
from storage.trials import Trials
from tests.service.running import wait_until

SPEC = {
    "task": {"kind": "digits"},
    "architectures": ["rnn"],
    "parametrizations": ["dense", "low_rank"],
    "space": {"rnn.hidden_size": {"low": 8, "high": 16}},
    "objectives": ["quality", "parameters"],
    "budget": {"trials": 6, "epochs": 1},
    "sampler": {"kind": "tpe", "startup_trials": 2},
}

PRESETS_SPEC = {
    **SPEC,
    "parametrizations": ["dense"],
    "presets": ["rnn-32", "svd-rnn-32-16"],
    "space": {
        "rnn.hidden_size": {"low": 8, "high": 32},
        "learning_rate": {"low": 1e-4, "high": 1e-2, "log": True},
        "batch_size": {"options": [64, 128]},
        "decay": 0.99,
        "clip_norm": None,
    },
}
"""The first preset lies in the space, the second does not."""

IN_THE_SPACE = {
    "rnn.hidden_size": 32,
    "training.learning_rate": 1e-3,
    "training.batch_size": 128,
}


class Site:
    """An API process and a database; coordinators come and go."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.database = Database(f"sqlite:///{folder / 'reflectory.db'}")
        self.database.migrate()
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        self.http = httpx2.Client(base_url=self.url, timeout=30)
        settings = {"REFLECTORY_DATA_DIR": str(folder), "REFLECTORY_PORT": str(port)}
        self._log = (folder / "processes.log").open("ab")
        self._processes: list[subprocess.Popen[bytes]] = []
        self._start([sys.executable, "-m", "service.cli", "api"], settings)
        wait_until(self._answers, what="the API")

    def _start(self, command: list[str], settings: dict[str, str]) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            command, env={**os.environ, **settings}, stdout=self._log, stderr=self._log
        )
        self._processes.append(process)
        return process

    def _answers(self) -> bool:
        with suppress(httpx2.TransportError):
            return self.http.get("/healthz").status_code == 200
        return False

    def coordinate(self, point: str, number: int) -> subprocess.Popen[bytes]:
        module = "tests.search.dying_coordinator"
        words = [sys.executable, "-m", module, point, str(number), str(self.folder), self.url]
        return self._start(words, {})

    def close(self) -> None:
        self.http.close()
        for process in self._processes:
            process.kill()
            process.wait()
        self.database.dispose()
        self._log.close()


@pytest.fixture
def site(tmp_path: Path) -> Generator[Site]:
    made = Site(tmp_path)
    yield made
    made.close()


def finish(site: Site, study_id: str) -> None:
    last = site.coordinate("never", 0)
    wait_until(
        lambda: site.http.get(f"/v1/studies/{study_id}").json()["state"] == "finished",
        what=f"the study's end; log {site.folder / 'processes.log'}",
    )
    last.terminate()
    last.wait(timeout=20)


def assert_whole(site: Site, study_id: str) -> list[dict]:
    """Each trial is there once, ended once, told once; Optuna has the same ones."""
    with site.database.read() as session:
        trials = Trials(session).list(study_id)
        exchanges = Exchanges(session).list(study_id)
    assert [trial.number for trial in trials] == list(range(6))
    assert {trial.state for trial in trials} == {TrialState.COMPLETE}
    for kind in ("ask", "tell"):
        assert sorted(row.trial for row in exchanges if row.kind == kind) == list(range(6))
    mirrored = optuna.load_study(
        study_name=f"study [{study_id}]", storage=f"sqlite:///{site.folder / 'optuna.db'}"
    )
    assert len(mirrored.trials) == 6
    for ours, theirs in zip(trials, mirrored.trials, strict=True):
        assert theirs.state == optuna.trial.TrialState.COMPLETE
        assert theirs.params == ours.drawn
        assert theirs.values == [ours.quality, float(ours.parameters)]
    return [dict(trial.drawn) for trial in trials]


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory: pytest.TempPathFactory) -> list[dict]:
    """What the same study draws when nobody dies."""
    site = Site(tmp_path_factory.mktemp("unbroken"))
    try:
        study_id = site.http.post("/v1/studies", json=SPEC).json()["id"]
        finish(site, study_id)
        return assert_whole(site, study_id)
    finally:
        site.close()


@pytest.mark.parametrize("point", ["asked", "half drawn", "ended", "told"])
def test_a_coordinator_that_dies_between_optuna_and_our_rows_loses_nothing(
    site: Site, unbroken: list[dict], point: str
) -> None:
    study_id = site.http.post("/v1/studies", json=SPEC).json()["id"]
    dying = site.coordinate(point, 2)
    assert dying.wait(timeout=120) == -signal.SIGKILL
    finish(site, study_id)
    drawn = assert_whole(site, study_id)
    # What was asked before the death is the same; `half drawn` chose a size that the sampler did
    # not.
    if point != "half drawn":
        assert drawn[:3] == unbroken[:3]


def test_a_study_survives_the_loss_of_optunas_tables(site: Site) -> None:
    study_id = site.http.post("/v1/studies", json=SPEC).json()["id"]
    dying = site.coordinate("told", 3)
    assert dying.wait(timeout=120) == -signal.SIGKILL
    for file in site.folder.glob("optuna.db*"):
        file.unlink()
    finish(site, study_id)
    assert_whole(site, study_id)


@pytest.mark.parametrize(("point", "number"), [("half given", 0), ("given", 0), ("asked", 1)])
def test_presets_come_first_whenever_the_coordinator_dies(
    site: Site, point: str, number: int
) -> None:
    study_id = site.http.post("/v1/studies", json=PRESETS_SPEC).json()["id"]
    dying = site.coordinate(point, number)
    assert dying.wait(timeout=120) == -signal.SIGKILL
    finish(site, study_id)
    drawn = assert_whole(site, study_id)
    assert drawn[:2] == [IN_THE_SPACE, {}]
    assert_presets_are_noted(site, study_id)


def test_presets_survive_the_loss_of_optunas_tables(site: Site) -> None:
    study_id = site.http.post("/v1/studies", json=PRESETS_SPEC).json()["id"]
    dying = site.coordinate("told", 3)
    assert dying.wait(timeout=120) == -signal.SIGKILL
    for file in site.folder.glob("optuna.db*"):
        file.unlink()
    finish(site, study_id)
    assert assert_whole(site, study_id)[:2] == [IN_THE_SPACE, {}]
    assert_presets_are_noted(site, study_id)


def assert_presets_are_noted(site: Site, study_id: str) -> None:
    """The dashboard tells both presets, and shows all of their configurations."""
    mirrored = optuna.load_study(
        study_name=f"study [{study_id}]", storage=f"sqlite:///{site.folder / 'optuna.db'}"
    )
    inside, outside, *others = (trial.user_attrs for trial in mirrored.trials)
    assert inside["preset"] == "rnn-32"
    assert inside["training.decay"] == 0.99
    assert outside["preset"] == "svd-rnn-32-16"
    assert outside["rnn.hidden_size"] == 32
    assert outside["householder_svd.m1"] == 16
    assert all("preset" not in attributes for attributes in others)
