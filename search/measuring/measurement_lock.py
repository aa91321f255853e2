"""The measurement lock of a device: many may compute at once, or one measurer alone."""

import fcntl
import os
import re
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Self

# Two locks, see Note [Turnstile and room] in search/README.md.


def lock_folder(locks: Path, device: str) -> Path:
    """The folder of a device's lock files, below the folder of all."""
    return locks / re.sub(r"[^A-Za-z0-9_-]", "-", device)


def is_held_alone(folder: Path) -> bool:
    """Whether a measurer has the room to itself just now; asking disturbs nobody.

    One that waits for the last batches has the turnstile, and not the room yet.
    """
    try:
        room = os.open(folder / "room", os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(room, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(room)
    return False


class MeasurementLock:
    """One process's hold on a device's measurement lock.

    Make it in the process that uses it: locks belong to the open files, so that an object which a
    fork copied is the same holder as the original. For the same reason threads do not share one,
    and `shared` and `exclusive` do not nest.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._turnstile = _open(folder / "turnstile")
        self._room = _open(folder / "room")
        self._stood_still_seconds = 0.0

    @property
    def stood_still_seconds(self) -> float:
        """How long `shared` has waited for measurers, in all."""
        return self._stood_still_seconds

    @contextmanager
    def shared(self) -> Generator[None]:
        """Compute beside others; waits at the turnstile while somebody measures or is about to."""
        self._pass_turnstile()
        fcntl.flock(self._room, fcntl.LOCK_SH)
        fcntl.flock(self._turnstile, fcntl.LOCK_UN)
        try:
            yield
        finally:
            fcntl.flock(self._room, fcntl.LOCK_UN)

    @contextmanager
    def exclusive(self) -> Generator[None]:
        """Have the device alone, once everybody has come to the end of the batch underway."""
        fcntl.flock(self._turnstile, fcntl.LOCK_EX)
        try:
            fcntl.flock(self._room, fcntl.LOCK_EX)
            try:
                yield
            finally:
                fcntl.flock(self._room, fcntl.LOCK_UN)
        finally:
            fcntl.flock(self._turnstile, fcntl.LOCK_UN)

    def close(self) -> None:
        """Close the files, and with them free whatever is held."""
        os.close(self._turnstile)
        os.close(self._room)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _pass_turnstile(self) -> None:
        try:
            fcntl.flock(self._turnstile, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            started = time.monotonic()
            fcntl.flock(self._turnstile, fcntl.LOCK_EX)
            self._stood_still_seconds += time.monotonic() - started


def _open(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
