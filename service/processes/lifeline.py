"""A child process that ends when its parent ends, however that happens.

Two strings hold it: the kernel sends a signal when the parent dies (Linux), and a pipe whose other
end only the parent has comes to its end (anywhere). Both ask the child to stop in order; a child
that does not within the grace time ends at once.
"""

import ctypes
import logging
import os
import signal
import sys
import threading

_log = logging.getLogger(__name__)

_PR_SET_PDEATHSIG = 1


def hold_on(pipe: int, *, parent: int, grace_seconds: float) -> None:
    """Bind this process to its parent. Called once, first thing in the child.

    Args:
        pipe: file descriptor of the pipe's reading end.
        parent: the parent's process id.
        grace_seconds: how long an end in order may take once the parent is gone.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, int(signal.SIGTERM))
    os.set_inheritable(pipe, False)
    watcher = threading.Thread(
        target=_watch, args=(pipe, grace_seconds), name="lifeline", daemon=True
    )
    watcher.start()
    if os.getppid() != parent:
        # It died before the kernel was asked to tell.
        os.kill(os.getpid(), signal.SIGTERM)


def _watch(pipe: int, grace_seconds: float) -> None:
    # Nothing is ever written: reading returns when the last writing end is closed.
    os.read(pipe, 1)
    _log.warning("the supervisor is gone; this process stops")
    os.kill(os.getpid(), signal.SIGTERM)
    threading.Event().wait(grace_seconds)
    os._exit(1)
