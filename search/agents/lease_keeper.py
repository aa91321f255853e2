"""The thread that keeps a worker's lease, and ends the worker when it cannot."""

import logging
import os
import signal
import threading
import time
from collections.abc import Callable
from typing import Self, final

from search.agents.worker_client import WorkerLink
from search.errors import SearchError
from search.training.jobs import Heartbeat, Verdict

_log = logging.getLogger(__name__)

_RENEWED_BEFORE = 2 / 3
"""The share of the lease that is left when a heartbeat is due: a third of it has passed."""


def kill_own_group() -> None:
    """Kill this process, which is to lead a group of its own, and all that it started."""
    _log.error("killing this process and its group")
    os.killpg(0, signal.SIGKILL)


@final
class LeaseKeeper:
    """Sends a heartbeat whenever nothing else has renewed the lease for a third of its time.

    When the lease is lost, `check` raises and the worker has as long as the lease held to notice
    that; then, or when the service was unreachable for that long, `end` is called, since another
    attempt may already do its work.
    """

    def __init__(
        self,
        link: WorkerLink,
        *,
        stood_still_seconds: Callable[[], float],
        end: Callable[[], None] = kill_own_group,
    ) -> None:
        self._link = link
        self._stood_still_seconds = stood_still_seconds
        self._end = end
        self._begun = time.monotonic()
        self._done = threading.Event()
        self._lost: SearchError | None = None
        self._stop: Verdict | None = None
        self._thread = threading.Thread(target=self._keep, name="lease-keeper", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()

    @property
    def stop(self) -> Verdict | None:
        """The verdict to stop, once a heartbeat was answered with it."""
        return self._stop

    @property
    def held_seconds(self) -> float:
        """How long the lease has been kept, by a clock that nobody sets."""
        return time.monotonic() - self._begun

    def check(self) -> None:
        """Go on only while the lease holds.

        Raises:
            WorkerRefused: it does not.
        """
        if self._lost is not None:
            raise self._lost

    def _keep(self) -> None:
        try:
            while not self._done.wait(self._seconds_to_next()):
                self._beat()
        except SearchError as error:
            self._lost = error
            if not self._done.wait(max(0.0, self._link.seconds_left())):
                _log.error("the lease is lost: %s", error)
                self._end()

    def _beat(self) -> None:
        verdict = self._link.heartbeat(
            Heartbeat(
                stood_still_seconds=self._stood_still_seconds(), held_seconds=self.held_seconds
            )
        )
        if verdict.verdict == "stop":
            self._stop = verdict

    def _seconds_to_next(self) -> float:
        due = _RENEWED_BEFORE * self._link.lease_seconds
        return max(0.0, self._link.seconds_left() - due)
