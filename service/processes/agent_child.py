"""The agent of a coordinator that runs by itself: a child process, as `serve` has one."""

import logging
import os
import subprocess
import sys
import threading
from collections.abc import Generator
from contextlib import contextmanager, suppress
from typing import final

from service.processes.agents_key import AgentsKey
from service.processes.executors import own_api_url
from service.settings import Settings
from storage.engine import Database
from storage.errors import DatabaseUnavailable

_log = logging.getLogger(__name__)

_BOUND = "search.agents.launchers.bound"
_FIRST_PAUSE_SECONDS = 0.5
_LONGEST_PAUSE_SECONDS = 30.0


@contextmanager
def agent_beside(settings: Settings, database: Database, *, owner: str) -> Generator[None]:
    """Have this machine's slots served by an agent meanwhile; one that ends is started again.

    It comes by the API's socket where the settings name one. Elsewhere it shows the key of
    `REFLECTORY_KEY`, or one that is made for it where the server asks for keys.
    """
    key = AgentsKey(database, name=f"the agent of {owner}"[:100])
    child = _AgentChild(settings, key)
    thread = threading.Thread(target=child.run, name="agent")
    thread.start()
    try:
        yield
    finally:
        child.stop()
        thread.join()
        with suppress(DatabaseUnavailable):
            key.revoke()


@final
class _AgentChild:
    """Keeps one process of `reflectory worker` at work."""

    def __init__(self, settings: Settings, key: AgentsKey) -> None:
        self._settings = settings
        self._key = key
        self._stopping = threading.Event()
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None

    def run(self) -> None:
        """Start it, and start it again whenever it ends, until `stop`.

        The kernel ends it with the thread that calls this, however that ends.
        """
        pause = _FIRST_PAUSE_SECONDS
        while not self._stopping.is_set():
            try:
                code = self._served()
            except (DatabaseUnavailable, OSError) as error:
                code = str(error)
            if not self._stopping.is_set():
                _log.error("the agent ended and is started again", extra={"reason": code})
            self._stopping.wait(pause)
            pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)

    def stop(self) -> None:
        """Have it store what runs, and leave; `run` returns then."""
        with self._lock:
            self._stopping.set()
            if self._process is not None:
                self._process.terminate()

    def _served(self) -> int:
        environment = self._environment()
        with self._lock:
            if self._stopping.is_set():
                return 0
            worker = ("-m", "service.cli", "worker", "--server", own_api_url(self._settings))
            folder = str(self._settings.data_dir.absolute())
            bound = (sys.executable, "-P", "-m", _BOUND, str(os.getpid()))
            self._process = subprocess.Popen(
                [*bound, *worker, "--data-dir", folder],
                env=environment,
                # Ctrl-C in a terminal reaches the coordinator, which then ends this.
                process_group=0,
            )
        return self._process.wait()

    def _environment(self) -> dict[str, str]:
        environment = {**os.environ, "REFLECTORY_EXECUTOR": self._settings.executor}
        if self._settings.attempts_socket is None and "REFLECTORY_KEY" not in environment:
            key = self._key.text()
            if key is not None:
                environment["REFLECTORY_KEY"] = key
        return environment
