"""Keeps a driver of Ray running that places agents, and tells it how much work waits.

The driver is a process of its own, started and watched here, so that nobody else waits for Ray:
see Note [Ray in a process of its own] in `search/README.md`.
"""

import contextlib
import importlib.util
import logging
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import final

from search.agents.launchers.ray.messages import Cluster, Demand, State
from search.errors import ExecutorError

_log = logging.getLogger(__name__)

_MODULE = "search.agents.launchers.ray.driver"
_LOOK_SECONDS = 1.0
"""How often it is looked how much waits, which is the driver's sign of life as well."""
_CONNECT_SECONDS = 60.0
"""How long a driver may take until it has seen the cluster for the first time."""
_SILENT_SECONDS = 20.0
"""How long it may be silent after that: one whose head is gone stands still."""
_CLOSE_SECONDS = 10.0
_FIRST_PAUSE = 1.0
_LONGEST_PAUSE = 30.0
"""How long after a lost connection another one is tried, doubling from the first to the longest."""
_LAST_WORDS = 2000


def check_installed() -> None:
    """Refuse to begin without Ray.

    Raises:
        ExecutorError: it is not installed.
    """
    if importlib.util.find_spec("ray") is None:
        raise ExecutorError("Ray is not installed here: pip install 'reflectory[ray]'")


def keep_agents_placed(
    cluster: Cluster,
    demand: Callable[[], Demand],
    *,
    errors: Path,
    stop: threading.Event,
) -> None:
    """Have agents placed on a cluster until `stop` is set; then they leave.

    Without a cluster, and when one is lost, it is tried again for ever. To be called by a thread
    that lives until the end: the kernel ties the driver to it.

    Args:
        cluster: which one, and how it is used.
        demand: looks how much waits; called about once a second, by this thread.
        errors: file for what drivers and Ray have to say.
        stop: when to end.
    """
    check_installed()
    errors.parent.mkdir(parents=True, exist_ok=True)
    pause = _FIRST_PAUSE
    while not stop.is_set():
        try:
            driver = _Driver(cluster, errors)
        except OSError as error:
            reason = f"the driver of Ray could not be started: {error}"
        else:
            reason = driver.serve(demand, stop)
            pause = _FIRST_PAUSE if driver.was_connected else pause
        if stop.is_set():
            return
        _log.error("no Ray cluster", extra={"reason": reason, "again_in_seconds": pause})
        stop.wait(pause)
        pause = min(2 * pause, _LONGEST_PAUSE)


@final
class _Driver:
    """One driver's process, from its exec to its end."""

    def __init__(self, cluster: Cluster, errors: Path) -> None:
        self._cluster = cluster
        self._errors = errors
        self._errors_from = errors.stat().st_size if errors.exists() else 0
        self._said = State()
        self.was_connected = False
        self._pipe, far_end = Pipe()
        with far_end:
            self._process = self._launch(far_end)

    def serve(self, demand: Callable[[], Demand], stop: threading.Event) -> str:
        """Tell the driver what waits, until it has ended or `stop` is set; why it ended."""
        reason = None
        try:
            with self._pipe:
                self._pipe.send_bytes(self._cluster.model_dump_json().encode())
                reason = self._talk(demand, stop)
        except (EOFError, OSError):
            # It has ended; what it wrote says why.
            pass
        finally:
            if stop.is_set() and reason is None:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self._process.wait(_CLOSE_SECONDS)
            elif reason is None:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self._process.wait(_LOOK_SECONDS)
            self._process.kill()
            self._process.wait()
        return reason or self._last_words()

    def _talk(self, demand: Callable[[], Demand], stop: threading.Event) -> str | None:
        deadline = time.monotonic() + _CONNECT_SECONDS
        while True:
            while not self._pipe.poll(_LOOK_SECONDS):
                if stop.is_set() and not self.was_connected:
                    return "the service stops"
                if time.monotonic() > deadline:
                    return f"Ray's head at {self._cluster.address!r} does not answer"
            self._hear(State.model_validate_json(self._pipe.recv_bytes()))
            stop.wait(_LOOK_SECONDS)
            if stop.is_set():
                self._pipe.send_bytes(Demand(stop=True).model_dump_json().encode())
                # Until it has ended: nothing more is said.
                self._pipe.poll(_CLOSE_SECONDS)
                return None
            self._pipe.send_bytes(demand().model_dump_json().encode())
            deadline = time.monotonic() + _SILENT_SECONDS

    def _hear(self, state: State) -> None:
        """Log what has changed."""
        if not self.was_connected:
            self.was_connected = True
            _log.info("connected to Ray", extra={"address": self._cluster.address})
        for name in sorted(state.agents.keys() - self._said.agents.keys()):
            _log.info("an agent is placed", extra={"machine": name, "slots": state.agents[name]})
        for name in sorted(self._said.agents.keys() - state.agents.keys()):
            _log.info("an agent's place is given back", extra={"machine": name})
        for node, reason in state.refused.items() - self._said.refused.items():
            _log.error("a Ray node has no agent", extra={"machine": node, "reason": reason})
        if state.wish != self._said.wish:
            _log.info("the autoscaler is asked", extra={"slots": state.wish})
        self._said = state

    def _launch(self, far_end: Connection) -> "subprocess.Popen[bytes]":
        with self._errors.open("ab") as errors:
            return subprocess.Popen(
                # -P: a folder `search` or `models` where the service was started is not ours.
                [sys.executable, "-P", "-u", "-m", _MODULE, str(far_end.fileno())],
                pass_fds=(far_end.fileno(),),
                stdin=subprocess.DEVNULL,
                stdout=errors,
                stderr=errors,
                env=environment_of(self._cluster, os.environ),
                # A session of its own, so that Ctrl-C in a terminal reaches the service alone.
                start_new_session=True,
            )

    def _last_words(self) -> str:
        with self._errors.open("rb") as errors:
            errors.seek(self._errors_from)
            lines = errors.read()[-_LAST_WORDS:].decode(errors="replace").strip().splitlines()
        said = f"; its last words: {lines[-1].strip()}" if lines else ""
        return f"the connection to Ray broke{said} (see {self._errors})"


def environment_of(cluster: Cluster, ours: Mapping[str, str]) -> dict[str, str]:
    """The environment of a driver: a token is wanted, unless an open cluster is."""
    usual = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_AUTH_MODE": "disabled"}
    kept = {name: value for name, value in ours.items() if not name.startswith("REFLECTORY_")}
    return {**usual, **kept, **({} if cluster.open else {"RAY_AUTH_MODE": "token"})}
