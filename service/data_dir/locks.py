"""Locks on files, which the kernel lets go of however their holder ends."""

import fcntl
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def hold(file: Path, *, wait: bool = False) -> Generator[None]:
    """Hold a file's lock, making the file and its folder where they are missing.

    Raises:
        BlockingIOError: another process holds it, and it is not to be waited for.
    """
    file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    with file.open("a") as opened:
        fcntl.flock(opened, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        yield


def is_held(file: Path) -> bool:
    """Whether another process holds a file's lock; one that takes it meanwhile has to wait."""
    try:
        with file.open() as opened:
            fcntl.flock(opened, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False
