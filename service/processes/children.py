"""Child processes that are kept running."""

import logging
import select
import signal
import socket
import time
from collections.abc import Callable, Collection
from typing import final

from service.processes.forking import Forked, fork

_log = logging.getLogger(__name__)

_FIRST_PAUSE = 0.25
_LONGEST_PAUSE = 10.0
_LIVED_SECONDS = 10.0
"""A child that lived this long was well: its next death counts as the first again."""

_MOST_DEATHS = 6
"""So many deaths in a row, each soon after the start, and it is given up."""


class ChildGivenUp(Exception):
    """A child process dies again and again; its log says why."""


@final
class Child:
    """A process that is forked from this one, and forked again whenever it dies.

    Args:
        role: what it is called, in `ps` and in the log.
        run: what it does, up to its end.
        keep: descriptors of files that it uses, see `fork`.
        visits: a listening socket, at whose first connection the child is started; when it ends by
            itself with code 0, it waits for another one.
    """

    def __init__(
        self,
        role: str,
        run: Callable[[], None],
        *,
        keep: Collection[int] = (),
        visits: socket.socket | None = None,
    ) -> None:
        self.role = role
        self._run = run
        self._keep = tuple(keep)
        self._visits = visits
        self._process: Forked | None = None
        self._started_at = 0.0
        self._deaths = 0
        self._next_start = 0.0

    @property
    def pid(self) -> int | None:
        """The process that runs now."""
        return None if self._process is None else self._process.pid

    def waits_on(self) -> Collection[int]:
        """Descriptors, one of which becomes readable when `tend` has something to do."""
        if self._process is not None:
            return (self._process.fileno(),)
        return () if self._visits is None or self.seconds() else (self._visits.fileno(),)

    def seconds(self) -> float | None:
        """Until `tend` has something to do without that; null: nothing."""
        if self._process is not None:
            return None
        pause = max(0.0, self._next_start - time.monotonic())
        return pause if pause or self._visits is None else None

    def tend(self) -> None:
        """Start it when it is due; notice its death and plan the next start.

        Raises:
            ChildGivenUp: it died too often, each time soon after its start.
        """
        now = time.monotonic()
        if self._process is None:
            if now >= self._next_start and self._is_visited():
                self._started_at = now
                self._process = fork(self.role, self._run, keep=self._keep)
                _log.debug("%s is process %d", self.role, self._process.pid)
            return
        status = self._process.poll()
        if status is None:
            return
        self._process.kill_group()
        self._process = None
        if self._visits is not None and status == 0:
            self._deaths = 0
            _log.debug("%s waits for its next visit", self.role)
            return
        self._deaths = 1 if now - self._started_at > _LIVED_SECONDS else self._deaths + 1
        if self._deaths >= _MOST_DEATHS:
            raise ChildGivenUp(
                f"`{self.role}` ended {self._deaths} times in a row soon after its start, "
                f"at last with status {status}; the log above says why"
            )
        pause = min(_FIRST_PAUSE * 2 ** (self._deaths - 1), _LONGEST_PAUSE)
        self._next_start = now + pause
        _log.error(
            "%s ended with status %s and is started again in %.2f s", self.role, status, pause
        )

    def ask_to_end(self) -> None:
        """Send SIGTERM."""
        if self._process is not None:
            self._process.send_signal(signal.SIGTERM)

    def has_ended(self, seconds: float = 0.0) -> bool:
        """Whether no process of it runs, after so long at most."""
        return self._process is None or self._process.wait(seconds) is not None

    def end_now(self) -> None:
        """Kill what is left of it, its whole group."""
        if self._process is not None:
            self._process.kill_group()
            self._process.wait()

    def _is_visited(self) -> bool:
        return self._visits is None or bool(select.select([self._visits], [], [], 0)[0])
