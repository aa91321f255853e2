"""Real worker machines: cut off, slow, killed, stopped; every trial still ends exactly once.

The machine under test is behind a cable of its own, in a network namespace. Another one, beside
the server, goes on with what it loses.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx2
import psutil
import pytest

from service.auth.api_keys import create_key
from storage.engine import Database
from storage.records import LOCAL
from tests.chaos.audit import audit_study
from tests.service.namespaces import Namespace, namespace
from tests.service.relay import Relay
from tests.service.running import Server, wait_until

LEASE_SECONDS = 4.0
SPEC: dict[str, Any] = {
    "task": {"kind": "digits"},
    "architectures": ["rnn"],
    "parametrizations": ["dense", "low_rank"],
    "space": {"hidden_size": 16, "batch_size": 32},
    "objectives": ["quality", "parameters"],
    "sampler": {"kind": "random"},
    "budget": {"trials": 2, "epochs": 40},
}
LONG = {**SPEC, "budget": {"trials": 1, "epochs": 800}}
"""With a trial that is not through before something has happened to it."""


class Machine:
    """`reflectory worker`, started again as often as a test needs it."""

    def __init__(self, folder: Path, name: str, server: str, key: str, *before: str) -> None:
        self.name = name
        self.folder = folder / name
        self.log = folder / f"{name}.log"
        self._command = [*before, sys.executable, "-m", "service.cli", "worker"]
        self._command += ["--server", server, "--name", name, "--workers", "1"]
        self._command += ["--data-dir", str(self.folder)]
        self._environment = {**os.environ, "REFLECTORY_KEY": key}
        self.start()

    def start(self) -> None:
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                self._command, env=self._environment, stdout=log, stderr=log
            )

    def below(self) -> list[psutil.Process]:
        """Its fork server and the attempts."""
        with suppress(psutil.NoSuchProcess):
            return psutil.Process(self.process.pid).children(recursive=True)
        return []

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()


class Site:
    """A server without slots of its own, which listens on a cable and asks for keys."""

    def __init__(self, folder: Path, host: str) -> None:
        self.folder = folder
        self.server = Server(
            folder / "data",
            workers=0,
            environment={
                "REFLECTORY_HOST": host,
                "REFLECTORY_LEASE_SECONDS": str(LEASE_SECONDS),
                "REFLECTORY_SLOT_WAIT_SECONDS": "120",
            },
        )
        self.database = Database(f"sqlite:///{folder / 'data' / 'reflectory.db'}")
        (folder / "data").mkdir()
        self.database.migrate()
        keys = {
            scope: create_key(self.database.of(LOCAL), name=scope, scopes=(scope,)).text
            for scope in ("admin", "work")
        }
        self.work = keys["work"]
        self.server.http.headers["Authorization"] = f"Bearer {keys['admin']}"
        self.server.start()
        self.url = str(self.server.http.base_url).rstrip("/")

    @contextmanager
    def machine(self, name: str, *before: str, server: str | None = None) -> Iterator[Machine]:
        machine = Machine(self.folder, name, server or self.url, self.work, *before)
        try:
            yield machine
        finally:
            machine.close()

    def attempts(self, study_id: str, machine: Machine) -> list[dict[str, Any]]:
        """Attempts at trials on this machine, as the API shows them."""
        return [
            attempt
            for trial in self.server.trials(study_id)
            for attempt in trial["attempts"]
            if attempt["machine"] == machine.name
        ]

    def trains(self, study_id: str, machine: Machine) -> bool:
        """Whether an attempt there has trained for a while."""
        running = {
            trial["number"]
            for trial in self.server.trials(study_id)
            for attempt in trial["attempts"]
            if attempt["machine"] == machine.name and attempt["state"] == "running"
        }
        return any(len(self.server.curve(study_id, number)) > 3 for number in running)

    def audit(self, study_id: str, *, trials: int = 1) -> None:
        study = self.server.wait(study_id, seconds=240)
        assert study["state"] == "finished", study["state_reason"]
        front = self.server.get(f"/v1/studies/{study_id}/front")
        optuna = f"sqlite:///{self.folder / 'data' / 'optuna.db'}"
        outcomes = audit_study(self.database, optuna, study_id, front)
        assert outcomes == {"complete": trials}

    def close(self) -> None:
        self.server.close()
        self.database.dispose()


@pytest.fixture(scope="module")
def cable() -> Iterator[Namespace]:
    with namespace() as made:
        yield made


@pytest.fixture(scope="module")
def wired(tmp_path_factory: pytest.TempPathFactory, cable: Namespace) -> Iterator[Site]:
    site = Site(tmp_path_factory.mktemp("wired"), cable.address)
    yield site
    site.close()


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    site = Site(tmp_path_factory.mktemp("plain"), "127.0.0.1")
    yield site
    site.close()


@pytest.mark.slow
def test_what_runs_on_the_only_machine_outlives_its_being_cut_off_for_two_leases(
    wired: Site, cable: Namespace
) -> None:
    with wired.machine("cut", *cable.command()) as cut:
        study_id = wired.server.submit(LONG)
        wait_until(lambda: wired.trains(study_id, cut), what="epochs on the machine")
        cable.cut()
        try:
            time.sleep(2 * LEASE_SECONDS)
            assert [one["state"] for one in wired.attempts(study_id, cut)] == ["running"]
        finally:
            cable.mend()
        wired.audit(study_id)
        # It went on training meanwhile, for nobody else could have.
        assert cut.process.poll() is None
        states = [one["state"] for one in wired.attempts(study_id, cut)]
        assert states == ["ended"]
        assert [one["name"] for one in wired.server.get("/v1/agents")["items"]] == ["cut"]


@pytest.mark.slow
def test_a_trial_goes_on_elsewhere_while_its_machine_is_cut_off(
    wired: Site, cable: Namespace
) -> None:
    with wired.machine("far", *cable.command()) as far:
        study_id = wired.server.submit({**LONG, "seed": 1})
        wait_until(lambda: wired.trains(study_id, far), what="epochs on the machine")
        cable.cut()
        try:
            with wired.machine("near") as near:
                wait_until(lambda: wired.trains(study_id, near), what="epochs on the other one")
                cable.mend()
                wired.audit(study_id)
                assert wired.attempts(study_id, near)
        finally:
            cable.mend()


@pytest.mark.slow
def test_a_machine_behind_a_slow_lossy_cable_finishes_a_study(
    wired: Site, cable: Namespace
) -> None:
    cable.slow("delay", "200ms", "loss", "2%")
    try:
        with wired.machine("slow", *cable.command()):
            wired.audit(wired.server.submit({**SPEC, "seed": 2}), trials=2)
    finally:
        cable.slow("delay", "0ms")


class SlowRelay(Relay):
    """Takes a fifth of a second for whatever it passes on."""

    delay_seconds = 0.2


def test_a_machine_behind_a_slow_relay_finishes_a_study(plain: Site) -> None:
    url = httpx2.URL(plain.url)
    with (
        SlowRelay((url.host, url.port or 80)) as relay,
        plain.machine("relayed", server=relay.url) as machine,
    ):
        spec = {**SPEC, "seed": 3, "budget": {"trials": 2, "epochs": 3}}
        study_id = plain.server.submit(spec)
        plain.audit(study_id, trials=2)
        assert len(plain.attempts(study_id, machine)) == 2
        # What was written there is read here; the last of it comes after the attempt's end.
        wait_until(
            lambda: "epoch 3" in plain.server.http.get(f"/v1/studies/{study_id}/trials/0/log").text,
            what="the log",
        )


@pytest.mark.slow
def test_a_machine_that_is_stopped_has_its_trials_stored_for_another_to_go_on(
    plain: Site,
) -> None:
    with plain.machine("stopping") as stopping:
        study_id = plain.server.submit({**LONG, "seed": 4})
        wait_until(lambda: plain.trains(study_id, stopping), what="epochs on the machine")
        stopping.process.send_signal(signal.SIGTERM)
        assert stopping.process.wait(600) == 0
        known = {machine["name"] for machine in plain.server.get("/v1/agents")["items"]}
        assert "stopping" not in known
        # The coordinator hears of it at its next look.
        lost = wait_until(
            lambda: [a for a in plain.attempts(study_id, stopping) if a["state"] == "lost"],
            what="the loss of what ran there",
        )
        assert [attempt["reason"] for attempt in lost] == ["its machine was stopped"]
        with plain.machine("next") as following:
            plain.audit(study_id)
            logs = [log.read_text() for log in (following.folder / "logs").glob("*.log")]
            assert any("resumed after epoch" in log for log in logs)


@pytest.mark.slow
def test_a_machine_that_is_killed_leaves_nothing_behind_and_its_trials_go_on(plain: Site) -> None:
    with plain.machine("killed") as killed:
        study_id = plain.server.submit({**LONG, "seed": 5})
        wait_until(lambda: plain.trains(study_id, killed), what="epochs on the machine")
        below = killed.below()
        assert below
        killed.process.kill()
        _, alive = psutil.wait_procs(below, timeout=300)
        assert not alive
        killed.process.wait()
        reason = wait_until(lambda: plain.server.study(study_id)["state_reason"], what="a reason")
        assert reason == "waits for a slot: resources.device 'any'"
        assert plain.server.study(study_id)["state"] == "running"
        killed.start()
        wait_until(
            lambda: plain.server.study(study_id)["state_reason"] is None, what="no reason to wait"
        )
        plain.audit(study_id)
        states = [attempt["state"] for attempt in plain.attempts(study_id, killed)]
        assert sorted(set(states)) == ["ended", "lost"]


@pytest.mark.slow
def test_a_machine_outlives_an_api_that_is_killed(plain: Site) -> None:
    with plain.machine("patient") as patient:
        study_id = plain.server.submit({**LONG, "seed": 6})
        wait_until(lambda: plain.trains(study_id, patient), what="epochs on the machine")
        apis = [one for one in plain.server.processes() if "api" in one.cmdline()]
        assert apis
        for api in apis:
            api.kill()
            api.wait(300)
        wait_until(lambda: plain.server.answers("/healthz") == 200, what="another API process")
        plain.audit(study_id)
        assert patient.process.poll() is None


@pytest.mark.slow
def test_a_machine_that_joins_late_serves_a_study_that_waits(plain: Site) -> None:
    # Those of other tests were killed, and are taken to be here for a lease.
    wait_until(
        lambda: not plain.server.get("/v1/devices")["items"], what="a server without machines"
    )
    study_id = plain.server.submit({**SPEC, "seed": 7, "resources": {"device": "cpu"}})
    reason = wait_until(lambda: plain.server.study(study_id)["state_reason"], what="a reason")
    assert reason == "waits for a slot: resources.device 'cpu'"
    with plain.machine("late"):
        plain.audit(study_id, trials=2)
