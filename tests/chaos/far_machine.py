"""A second machine: `reflectory worker` behind a wire that can be struck."""

import os
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import psutil

from tests.chaos.wire import Wire
from tests.patience import LONG_SECONDS


class FarMachine:
    """Its agent is started again as often as it ends; what it leaves is in `folder`."""

    def __init__(self, folder: Path, wire: Wire, environment: Mapping[str, str]) -> None:
        self.folder = folder
        self.wire = wire
        self.log = folder.with_suffix(".log")
        self._environment = dict(environment)
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the agent, unless it runs."""
        if self._process is not None and self._process.poll() is None:
            return
        command = [sys.executable, "-m", "service.cli", "worker", "--server", self.wire.url]
        command += ["--name", "far", "--workers", "1", "--data-dir", str(self.folder)]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                command, stdout=log, stderr=log, env={**os.environ, **self._environment}
            )

    @property
    def agent(self) -> psutil.Process:
        """The agent's process."""
        assert self._process is not None
        return psutil.Process(self._process.pid)

    def workers_at_work(self) -> list[psutil.Process]:
        """Its slots' processes: children of its fork server."""
        with suppress(psutil.NoSuchProcess):
            return [slot for child in self.agent.children() for slot in child.children()]
        return []

    def stop(self) -> int:
        """SIGTERM, and the exit code."""
        assert self._process is not None
        if self._process.poll() is None:
            self._process.terminate()
        return self._process.wait(LONG_SECONDS)

    def close(self) -> None:
        """Leave nothing behind."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()
