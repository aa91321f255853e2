"""An API process and a database, with coordinators that come and go."""

import multiprocessing
import os
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import httpx2

from tests.databases import migrated
from tests.search import dying_coordinator
from tests.service.running import wait_until

# The server process imports the coordinator once; a fork of it is a new one in milliseconds.
_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload([dying_coordinator.__name__])


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
        with self.log.open("ab") as log:
            self._api = subprocess.Popen(
                [sys.executable, "-m", "service.cli", "api"],
                env={**os.environ, **settings},
                stdout=log,
                stderr=log,
            )
        self._coordinators: list[BaseProcess] = []
        wait_until(self._answers, what="the API")

    def _answers(self) -> bool:
        with suppress(httpx2.TransportError):
            return self.http.get("/healthz").status_code == 200
        return False

    def coordinate(self, point: str, number: int, **given: Any) -> BaseProcess:
        process = _CONTEXT.Process(
            target=dying_coordinator.main,
            args=(point, number),
            kwargs={"folder": self.folder, "api_url": self.url, "log": self.log, **given},
        )
        process.start()
        self._coordinators.append(process)
        return process

    def close(self) -> None:
        self.http.close()
        self._api.kill()
        self._api.wait()
        for process in self._coordinators:
            process.kill()
            process.join()
        self.database.dispose()


def break_off(site: Site, point: str, number: int) -> None:
    """Have a coordinator work until it dies at its point."""
    dying = site.coordinate(point, number)
    dying.join(timeout=1200)
    assert dying.exitcode == -signal.SIGKILL


def finish(site: Site, study_id: str) -> None:
    last = site.coordinate("never", 0)
    wait_until(
        lambda: site.http.get(f"/v1/studies/{study_id}").json()["state"] == "finished",
        what=f"the study's end; log {site.log}",
    )
    last.terminate()
    last.join(timeout=200)
