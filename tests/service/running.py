"""A real server for tests: `reflectory serve` in a data directory of its own, asked over HTTP."""

import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Generator, Mapping
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx2
import psutil

from service.data_dir.server_file import ServerFile
from tests.patience import LONG_SECONDS, PATIENCE_SECONDS, wait_while_it_moves

ASKING_SECONDS = 0.15
"""Between two questions about a study's end: an answer takes a server a hundredth of a second."""


def wait_until(
    holds: Callable[[], Any], *, what: str, seconds: float = PATIENCE_SECONDS, pause: float = 0.05
) -> Any:
    """The first true answer of `holds`; a test fails that waits in vain."""
    return wait_while_it_moves(holds, what=what, seconds=seconds, pause=pause)


def command(server: str, *words: object) -> subprocess.CompletedProcess[str]:
    """Run `reflectory` with these words, for a server at that address, to its end."""
    return subprocess.run(
        [sys.executable, "-m", "service.cli", *map(str, words)],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
        env={**os.environ, "REFLECTORY_SERVER": server, "COLUMNS": "100"},
    )


class Server:
    """`reflectory serve`, started again as often as a test needs it on the same data directory."""

    def __init__(
        self,
        data_dir: Path,
        *,
        workers: int = 2,
        environment: Mapping[str, str] | None = None,
        program: str = "service.cli",
    ) -> None:
        """`program` is the module that is run; another one than `reflectory` ends up there."""
        self.data_dir = data_dir
        self.log = data_dir.with_suffix(".log")
        self._workers = workers
        self._program = program
        self._environment = dict(environment or {})
        self._process: subprocess.Popen[bytes] | None = None
        self.http = httpx2.Client(timeout=300)

    def start(self) -> "Server":
        """Start the server and wait until it is ready."""
        self.launch()
        wait_until(self._is_ready, what=f"a ready server; its log is {self.log}")
        return self

    def launch(self) -> None:
        """Start the server, which may not become ready before something else happens."""
        command = [sys.executable, "-m", self._program, "serve", "--port", "0"]
        command += ["--data-dir", str(self.data_dir), "--workers", str(self._workers)]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                command, stdout=log, stderr=log, env={**os.environ, **self._environment}
            )

    def _is_ready(self) -> bool:
        return self.answers("/readyz") == 200

    def answers(self, path: str) -> int | None:
        """The status that a server gives which has just been launched; none while it is silent."""
        assert self._process is not None
        if self._process.poll() is not None:
            raise AssertionError(f"the server ended:\n{self.log.read_text()[-4000:]}")
        described = ServerFile.read(self.data_dir)
        # A killed one may have left its own.
        if described is None or described.pid != self.pid:
            return None
        with suppress(httpx2.TransportError):
            self.http.base_url = httpx2.URL(described.url)
            return self.http.get(path).status_code
        return None

    @property
    def pid(self) -> int:
        """The supervisor's process."""
        assert self._process is not None
        return self._process.pid

    @property
    def has_ended(self) -> bool:
        """Whether the supervisor has ended."""
        return self._process is not None and self._process.poll() is not None

    def processes(self) -> list[psutil.Process]:
        """The supervisor and all below it."""
        top = psutil.Process(self.pid)
        return [top, *top.children(recursive=True)]

    def workers_at_work(self) -> list[psutil.Process]:
        """The attempts' processes: children of the fork server."""
        found: list[psutil.Process] = []
        for process in self.processes():
            with suppress(psutil.NoSuchProcess):
                if any("fork_server" in word for word in process.cmdline()):
                    parent = process.parent()
                    if parent and any("fork_server" in word for word in parent.cmdline()):
                        found.append(process)
        return found

    @contextmanager
    def without_coordinator(self) -> Generator[None]:
        """A while in which the coordinator stands still, on SQLite; then it is killed."""
        coordinator = next(p for p in self.processes() if "coordinator" in p.cmdline())

        def is_stopped() -> bool:
            coordinator.send_signal(signal.SIGSTOP)
            if _stands_still(coordinator.pid) and self._may_be_written():
                return True
            # In the middle of a transaction it would hold up all other writers.
            coordinator.send_signal(signal.SIGCONT)
            return False

        try:
            wait_until(is_stopped, what="a coordinator that stands still outside of transactions")
            yield
        finally:
            coordinator.send_signal(signal.SIGKILL)

    def _may_be_written(self) -> bool:
        database = sqlite3.connect(self.data_dir / "reflectory.db", timeout=1, isolation_level=None)
        with closing(database), suppress(sqlite3.OperationalError):
            database.execute("BEGIN IMMEDIATE")
            return True
        return False

    def kill_everything(self) -> None:
        """`kill -9` of every process at once."""
        assert self._process is not None
        processes = self.processes()
        for process in processes:
            with suppress(psutil.NoSuchProcess):
                process.send_signal(signal.SIGKILL)
        self._process.wait()
        psutil.wait_procs(processes, timeout=10)

    def stop(self) -> int:
        """SIGTERM, and the exit code."""
        assert self._process is not None
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
        return self._process.wait(timeout=LONG_SECONDS)

    def close(self) -> None:
        """Leave nothing behind, whatever the test did."""
        self.http.close()
        if self._process is not None and self._process.poll() is None:
            self.kill_everything()
            left = ServerFile.read(self.data_dir)
            if left is not None and left.folder is not None:
                shutil.rmtree(left.folder, ignore_errors=True)

    def get(self, path: str, **query: Any) -> Any:
        """The JSON body of a GET that has to succeed."""
        answer = self.http.get(path, params=query or None)
        assert answer.status_code == 200, (path, answer.status_code, answer.text)
        return answer.json()

    def submit(self, spec: Mapping[str, Any]) -> str:
        """POST a study that has to be accepted, and name it."""
        answer = self.http.post("/v1/studies", json=dict(spec))
        assert answer.status_code == 202, answer.text
        return str(answer.json()["id"])

    def study(self, study_id: str) -> dict[str, Any]:
        """The study as it stands."""
        return self.get(f"/v1/studies/{study_id}")

    def wait(self, study_id: str, *, seconds: float = PATIENCE_SECONDS) -> dict[str, Any]:
        """The study once it has ended."""

        def ended() -> dict[str, Any] | None:
            study = self.study(study_id)
            return study if study["state"] in ("finished", "failed", "cancelled") else None

        return wait_until(
            ended,
            what=f"the end of study {study_id}; log {self.log}",
            seconds=seconds,
            pause=ASKING_SECONDS,
        )

    def trials(self, study_id: str) -> list[dict[str, Any]]:
        """Every trial, over all pages."""
        found: list[dict[str, Any]] = []
        cursor = None
        while True:
            query = {"limit": 50} | ({"cursor": cursor} if cursor else {})
            page = self.get(f"/v1/studies/{study_id}/trials", **query)
            found += page["items"]
            cursor = page["next_cursor"]
            if cursor is None:
                return found

    def curve(self, study_id: str, number: int) -> list[dict[str, Any]]:
        """A trial's learning curve."""
        return self.get(f"/v1/studies/{study_id}/trials/{number}/metrics")


def _stands_still(pid: int) -> bool:
    """Whether every thread of a process has been stopped."""
    states = [stat.read_text() for stat in Path(f"/proc/{pid}/task").glob("*/stat")]
    return all(state.rpartition(")")[2].split()[0] == "T" for state in states)
