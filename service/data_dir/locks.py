"""Locks on files, which the kernel lets go of however their holder ends."""

import fcntl
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def hold(file: Path) -> Generator[None]:
    """Hold a file's lock, making the file and its folder where they are missing.

    Raises:
        BlockingIOError: another process holds it.
    """
    file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with file.open("a") as opened:
        fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
