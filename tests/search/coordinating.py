"""An API process and a database, with coordinators that come and go."""

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
    """An API process and a database; coordinators come and go."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.database = migrated(f"sqlite:///{folder / 'reflectory.db'}")
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        self.http = httpx2.Client(base_url=self.url, timeout=300)
        settings = {"REFLECTORY_DATA_DIR": str(folder), "REFLECTORY_PORT": str(port)}
        self.log = folder / "processes.log"
        self._api = self._start("service.cli", "api", environment=settings)
        self._coordinators: list[subprocess.Popen[bytes]] = []
        wait_until(self._answers, what="the API")

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
        asked = {"folder": str(self.folder), "api_url": self.url, **given}
        document = json.dumps({"point": point, "number": number, **asked})
        process = self._start("tests.search.dying_coordinator", document)
        self._coordinators.append(process)
        return process

    def close(self) -> None:
        self.http.close()
        self._api.kill()
        self._api.wait()
        for process in self._coordinators:
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
