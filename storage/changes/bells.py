"""Bells beside a SQLite file: who commits rings, and the processes that wait are awake at once.

A bell is a named pipe in a folder beside the file. Looking every few milliseconds would do the same
and cost a few per cent of a core in each process, for as long as it lives.
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
class Bells:
    """Rings all bells of a folder.

    Args:
        folder: need not be there: then nobody listens.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def ring(self) -> None:
        """Wake whoever listens; takes some microseconds for each and never waits.

        It never fails: who hears no bell looks by itself now and then.
        """
        for name in self._names():
            place = self._folder / name
            try:
                pipe = os.open(place, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            except OSError as error:
                if error.errno == errno.ENXIO:  # whoever listened is gone
                    with suppress(OSError):
                        place.unlink()
                continue
            _ring(pipe)
            os.close(pipe)

    def hang(self) -> "Bell | None":
        """A new bell; null where there can be none: a file system without named pipes."""
        number = secrets.token_hex(8)
        # It gets its name when it is listened to: one without a listener is taken away.
        made, place = self._folder / f".{number}", self._folder / number
        try:
            self._folder.mkdir(mode=0o700, exist_ok=True)
            os.mkfifo(made, 0o600)
            # Open for writing as well, so that it is never at its end.
            pipe = os.open(made, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
            made.rename(place)
        except OSError:
            return None
        return Bell(pipe, place)

    def _names(self) -> Iterator[str]:
        with suppress(OSError):
            yield from (name for name in os.listdir(self._folder) if not name.startswith("."))


@final
class Bell:
    """One that a process listens to."""

    def __init__(self, pipe: int, place: Path) -> None:
        self.pipe = pipe
        self._place = place
        self._waiting = select.poll()
        self._waiting.register(pipe, select.POLLIN)

    def wait(self, seconds: float) -> None:
        """Wait until it rings, or for so long."""
        self._waiting.poll(1000 * seconds)
        self.heard()

    def ring(self) -> None:
        """Ring this one alone."""
        _ring(self.pipe)

    def heard(self) -> None:
        """Forget all that has rung so far."""
        with suppress(BlockingIOError):
            while os.read(self.pipe, 4096):
                pass

    def close(self) -> None:
        """Take it down."""
        with suppress(OSError):
            self._place.unlink()
        os.close(self.pipe)


def _ring(pipe: int) -> None:
    # A pipe that is full has rung, and nobody reads from one that is broken.
    with suppress(BlockingIOError, BrokenPipeError):
        os.write(pipe, b"!")
