"""Real processes of the API and the dashboard, for what no client in this process can show."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2

from service.settings import Settings
from tests.patience import LONG_SECONDS, wait_while_it_moves
from tests.service import api_process, dashboard_process


def log_of(settings: Settings) -> Path:
    """Where an API process with these settings writes what it has to say."""
    return settings.data_dir / "api.log"


class ApiProcess:
    """One API process on a free loopback port."""

    def __init__(self, settings: Settings) -> None:
        with socket.create_server(("127.0.0.1", 0)) as listener:
            self.url = f"http://127.0.0.1:{listener.getsockname()[1]}"
            descriptor = listener.fileno()
            self.log = log_of(settings)
            given = settings.model_dump_json()
            # Not a pipe: one that nobody reads is full some day, and the process waits for ever.
            with self.log.open("wb") as output:
                self.process = subprocess.Popen(
                    [sys.executable, "-m", api_process.__name__, given, str(descriptor)],
                    pass_fds=(descriptor,),
                    stdout=output,
                    stderr=output,
                )
        wait_until(self._answers)

    def _answers(self) -> bool:
        assert self.process.poll() is None, self.log.read_text()
        try:
            return httpx2.get(f"{self.url}/healthz", timeout=60).status_code == 200
        except httpx2.TransportError:
            return False

    def terminate(self) -> float:
        """Send SIGTERM; how long it took to end, in seconds."""
        began = time.monotonic()
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(LONG_SECONDS)
        return time.monotonic() - began


@contextmanager
def running_api(settings: Settings) -> Iterator[ApiProcess]:
    """An API process, and its end."""
    api = ApiProcess(settings)
    try:
        yield api
    finally:
        _end(api.process)


@contextmanager
def running_dashboard(settings: Settings, log: Path) -> Iterator["subprocess.Popen[bytes]"]:
    """A dashboard process (which may still wait for Optuna's tables), and its end."""
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", dashboard_process.__name__, settings.model_dump_json()],
            stdout=output,
            stderr=output,
            env={**os.environ},
        )
    try:
        yield process
    finally:
        _end(process)


def wait_until(holds: Callable[[], bool]) -> None:
    """Wait for a condition; a test fails that waits in vain."""
    wait_while_it_moves(holds, what="a condition")


def _end(process: "subprocess.Popen[bytes]") -> None:
    if process.poll() is None:
        process.kill()
    process.wait()
