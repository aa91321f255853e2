"""Named pipes beside a SQLite file: who commits writes to them, which wakes all that wait.

See Note [Notification pipes] in `storage/README.md`.
"""

import errno
import os
import secrets
import select
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import final


@final
class NotificationPipes:
    """The pipes of all processes that wait, in one folder.

    Args:
        folder: need not be there: then nobody listens.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def notify(self) -> None:
        """Wake all processes that wait; takes some microseconds for each and never waits.

        It never fails: a process that is not notified looks by itself now and then.
        """
        for name in self._names():
            place = self._folder / name
            try:
                pipe = os.open(place, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            except OSError as error:
                if error.errno == errno.ENXIO:  # the process that read from it is gone
                    with suppress(OSError):
                        place.unlink()
                continue
            _notify(pipe)
            os.close(pipe)

    def open(self) -> "NotificationPipe | None":
        """A new pipe; null where there can be none: a file system without named pipes."""
        number = secrets.token_hex(8)
        # It gets its name when it has a reader: one without a reader is removed.
        made, place = self._folder / f".{number}", self._folder / number
        try:
            self._folder.mkdir(mode=0o700, exist_ok=True)
            os.mkfifo(made, 0o600)
            # Open for writing as well, so that it is never at its end.
            pipe = os.open(made, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
            made.rename(place)
        except OSError:
            return None
        return NotificationPipe(pipe, place)

    def _names(self) -> Iterator[str]:
        with suppress(OSError):
            yield from (name for name in os.listdir(self._folder) if not name.startswith("."))


@final
class NotificationPipe:
    """One that this process reads from."""

    def __init__(self, pipe: int, place: Path) -> None:
        self.pipe = pipe
        self._place = place
        self._waiting = select.poll()
        self._waiting.register(pipe, select.POLLIN)

    def wait(self, seconds: float) -> None:
        """Wait until somebody writes to it, or for so long."""
        self._waiting.poll(1000 * seconds)
        self.drain()

    def notify(self) -> None:
        """Wake this process alone."""
        _notify(self.pipe)

    def drain(self) -> None:
        """Read all that was written so far."""
        with suppress(BlockingIOError):
            while os.read(self.pipe, 4096):
                pass

    def close(self) -> None:
        """Remove it."""
        with suppress(OSError):
            self._place.unlink()
        os.close(self.pipe)


def _notify(pipe: int) -> None:
    # A full pipe has something to read already, and nobody reads from a broken one.
    with suppress(BlockingIOError, BrokenPipeError):
        os.write(pipe, b"!")
