"""The lane of a device: many may compute in it at once, or one measurer alone."""

import fcntl
import os
import re
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

# Note [Turnstile and room]
# A plain shared/exclusive lock starves the measurer: while four trials take it shared around each
# of their batches, it is hardly ever free for all of it. So there are two locks. Whoever computes
# holds the room shared, and passes the turnstile on the way in. The measurer takes the turnstile
# and keeps it, so that nobody new comes in, and then has the room to itself once the batches
# underway are over. Both are flock locks on open files: the kernel frees them when their process
# ends, however it ends.


def lane_folder(lanes: Path, device: str) -> Path:
    """Where a device's lane is, below the folder of all."""
    return lanes / re.sub(r"[^A-Za-z0-9_-]", "-", device)


def is_held_alone(folder: Path) -> bool:
    """Whether a measurer has the room to itself just now; whoever asks disturbs nobody.

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


class Lane:
    """One process's place in a device's lane.

    Make it in the process that uses it: locks belong to the open files, so that a lane which a fork
    copied is the same holder as the original. For the same reason a lane is not shared by threads,
    and the two locks do not nest.
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

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
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
