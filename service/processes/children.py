"""Child processes that are kept running."""

import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence

_log = logging.getLogger(__name__)

_FIRST_PAUSE = 0.25
_LONGEST_PAUSE = 10.0
_LIVED_SECONDS = 10.0
"""A child that lived this long was well: its next death counts as the first again."""

_MOST_DEATHS = 6
"""So many deaths in a row, each soon after the start, and it is given up."""


class ChildGivenUp(Exception):
    """A child process dies again and again; its log says why."""


class Child:
    """One `reflectory <command>` process in a group of its own, started again whenever it dies."""

    def __init__(
        self,
        command: str,
        arguments: Sequence[str],
        *,
        environment: Mapping[str, str],
        descriptors: Sequence[int],
    ) -> None:
        self.command = command
        self._arguments = tuple(arguments)
        self._environment = dict(environment)
        self._descriptors = tuple(descriptors)
        self._process: subprocess.Popen[bytes] | None = None
        self._started_at = 0.0
        self._deaths = 0
        self._next_start = 0.0

    @property
    def pid(self) -> int | None:
        """The process that runs now."""
        return None if self._process is None else self._process.pid

    def tend(self) -> None:
        """Start it when it is due; notice its death and plan the next start.

        Raises:
            ChildGivenUp: it died too often, each time soon after its start.
        """
        now = time.monotonic()
        if self._process is None:
            if now >= self._next_start:
                self._start(now)
            return
        status = self._process.poll()
        if status is None:
            return
        self._end_group(signal.SIGKILL)
        self._process = None
        self._deaths = 1 if now - self._started_at > _LIVED_SECONDS else self._deaths + 1
        if self._deaths >= _MOST_DEATHS:
            raise ChildGivenUp(
                f"`reflectory {self.command}` ended {self._deaths} times in a row soon after its "
                f"start, at last with status {status}; the log above says why"
            )
        pause = min(_FIRST_PAUSE * 2 ** (self._deaths - 1), _LONGEST_PAUSE)
        self._next_start = now + pause
        _log.error(
            "%s ended with status %s and is started again in %.2f s", self.command, status, pause
        )

    def ask_to_end(self) -> None:
        """Send SIGTERM."""
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()

    def has_ended(self) -> bool:
        """Whether no process of it runs."""
        return self._process is None or self._process.poll() is not None

    def end_now(self) -> None:
        """Kill what is left of it, its whole group."""
        if self._process is not None:
            self._end_group(signal.SIGKILL)
            self._process.wait()

    def _start(self, now: float) -> None:
        self._started_at = now
        # A group of its own: Ctrl-C in the terminal reaches the supervisor alone, which ends all in
        # order. -P: a folder named `service` where the user stands is not this package.
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "service.cli", self.command, *self._arguments],
            env=self._environment,
            pass_fds=self._descriptors,
            stdin=subprocess.DEVNULL,
            process_group=0,
        )
        _log.debug("%s is process %d", self.command, self._process.pid)

    def _end_group(self, sign: signal.Signals) -> None:
        assert self._process is not None
        try:
            os.killpg(self._process.pid, sign)
        except ProcessLookupError:
            return
