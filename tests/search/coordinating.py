"""An API process, a database and a machine, with coordinators that come and go."""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx2

from tests.databases import migrated
from tests.service.running import ASKING_SECONDS, wait_until


class Site:
    """An API process, a database and a machine with one slot; coordinators come and go."""

    def __init__(
        self,
        folder: Path,
        *,
        lease_seconds: float = 10.0,
        fork_server: str = "search.agents.forking.fork_server",
    ) -> None:
        """`fork_server` is the machine's program."""
        self.folder = folder
        self._lease_seconds = lease_seconds
        self.database = migrated(f"sqlite:///{folder / 'reflectory.db'}")
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        self.http = httpx2.Client(base_url=self.url, timeout=300)
        settings = {
            "REFLECTORY_DATA_DIR": str(folder),
            "REFLECTORY_PORT": str(port),
            "REFLECTORY_LEASE_SECONDS": str(lease_seconds),
        }
        self.log = folder / "processes.log"
        self._api = self._start("service.cli", "api", environment=settings)
        self._coordinators: list[subprocess.Popen[bytes]] = []
        wait_until(self._answers, what="the API")
        words = ("tests.search.machine", self.url, str(folder / "machine"), fork_server)
        self._machine = self._start(*words)
        # A study whose coordinator knows of no slot fails.
        wait_until(lambda: self.http.get("/v1/agents").json()["items"], what="the machine")

    def _answers(self) -> bool:
        with suppress(httpx2.TransportError):
            return self.http.get("/healthz").status_code == 200
        return False

    def _start(
        self, *words: str, environment: Mapping[str, str] | None = None
    ) -> subprocess.Popen[bytes]:
        with self.log.open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-m", *words],
                env={**os.environ, **(environment or {})},
                stdout=log,
                stderr=log,
            )

    def coordinate(self, point: str, number: int, **given: Any) -> "subprocess.Popen[bytes]":
        """Start a coordinator that does what `tests.search.dying_coordinator` says."""
        asked = {"folder": str(self.folder), "lease_seconds": self._lease_seconds, **given}
        document = json.dumps({"point": point, "number": number, **asked})
        process = self._start("tests.search.dying_coordinator", document)
        self._coordinators.append(process)
        return process

    def close(self) -> None:
        self.http.close()
        for process in (self._machine, self._api, *self._coordinators):
            process.kill()
            process.wait()
        self.database.dispose()


def break_off(site: Site, point: str, number: int) -> None:
    """Have a coordinator work until it dies at its point."""
    dying = site.coordinate(point, number)
    assert dying.wait(timeout=1200) == -signal.SIGKILL


def finish(site: Site, study_id: str) -> None:
    last = site.coordinate("never", 0)
    wait_until(
        lambda: site.http.get(f"/v1/studies/{study_id}").json()["state"] == "finished",
        what=f"the study's end; log {site.log}",
        pause=ASKING_SECONDS,
    )
    last.terminate()
    last.wait(timeout=200)
