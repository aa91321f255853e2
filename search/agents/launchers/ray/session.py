"""The coordinator's side of one bridge: its process, its pipe and the thread that listens."""

import contextlib
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from multiprocessing import Pipe
from pathlib import Path
from typing import final

from search.agents.launchers.ray.messages import (
    REPORTS,
    REQUESTS,
    Away,
    Cluster,
    Nodes,
    Report,
    Request,
)

_MODULE = "search.agents.launchers.ray.bridge"
_CONNECT_SECONDS = 60.0
"""How long a bridge may take until it has seen the cluster for the first time."""
_SILENT_SECONDS = 20.0
"""How long it may be silent after that; it speaks every second, unless the head is gone."""
_CLOSE_SECONDS = 10.0
_LAST_WORDS = 2000


@final
class BridgeProcess:
    """One bridge, from its exec to its end; it is not started again: make a new one.

    Args:
        errors: file for what the bridge and Ray have to say.
        on_report: called with each report but the last, from the thread that calls `serve`.
    """

    def __init__(
        self, cluster: Cluster, *, errors: Path, on_report: Callable[[Report], None]
    ) -> None:
        self._cluster = cluster
        self._errors = errors
        self._errors_from = errors.stat().st_size if errors.exists() else 0
        self._on_report = on_report
        self._sending = threading.Lock()
        self._pipe, far_end = Pipe()
        with far_end:
            self._process = self._launch(far_end.fileno())
        self._pipe.send_bytes(cluster.model_dump_json().encode())

    def send(self, request: Request) -> None:
        """Pass a wish on; a bridge that has ended is noticed by `serve`."""
        with self._sending, contextlib.suppress(OSError):
            self._pipe.send_bytes(REQUESTS.dump_json(request))

    def serve(self) -> str:
        """Listen until the bridge has ended, and say why it did.

        The kernel ties the bridge to the thread that made it: that one is to listen as well.
        """
        reason = None
        deadline = time.monotonic() + _CONNECT_SECONDS
        try:
            while reason is None:
                if not self._pipe.poll(max(0.0, deadline - time.monotonic())):
                    reason = f"Ray's head at {self._cluster.address!r} does not answer"
                    break
                report = REPORTS.validate_json(self._pipe.recv_bytes())
                if isinstance(report, Away):
                    reason = report.reason
                    break
                if isinstance(report, Nodes):
                    deadline = time.monotonic() + _SILENT_SECONDS
                self._on_report(report)
        except (EOFError, OSError):
            pass
        finally:
            self._process.kill()
            self._process.wait()
        return reason or self._last_words()

    def close(self) -> None:
        """Have the bridge kill what runs and leave the cluster; `serve` returns soon."""
        with self._sending, contextlib.suppress(OSError):
            # An end of the pipe for the bridge, while we still hear its last reports.
            self._pipe.send_bytes(b"")

    def kill(self) -> None:
        """End the bridge by force."""
        self._process.kill()

    def _launch(self, descriptor: int) -> "subprocess.Popen[bytes]":
        with self._errors.open("ab") as errors:
            return subprocess.Popen(
                # -P: a folder `search` or `models` where the service was started is not ours.
                [sys.executable, "-P", "-u", "-m", _MODULE, str(descriptor)],
                pass_fds=(descriptor,),
                stdin=subprocess.DEVNULL,
                stdout=errors,
                stderr=errors,
                env=environment_of(self._cluster, os.environ),
                # A session of its own, so that Ctrl-C in a terminal reaches the coordinator alone.
                start_new_session=True,
            )

    def _last_words(self) -> str:
        with self._errors.open("rb") as errors:
            errors.seek(self._errors_from)
            lines = errors.read()[-_LAST_WORDS:].decode(errors="replace").strip().splitlines()
        said = f"; its last words: {lines[-1].strip()}" if lines else ""
        return f"the connection to Ray broke{said} (see {self._errors})"


def environment_of(cluster: Cluster, ours: Mapping[str, str]) -> dict[str, str]:
    """The environment of a bridge: a token is wanted, unless an open cluster is."""
    usual = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_AUTH_MODE": "disabled"}
    return {**usual, **ours, **({} if cluster.open else {"RAY_AUTH_MODE": "token"})}
