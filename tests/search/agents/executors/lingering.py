"""A fork server whose slots stand still for good when the last word of a job is said."""

import os
import signal
import sys
from multiprocessing.connection import Connection

from search.agents.executor import AttemptTicket
from search.agents.forking.fork_server import run_slot
from search.agents.forking.loop import connect, serve
from search.agents.slots import wear


def run_and_linger(first: AttemptTicket, pipe: Connection) -> int:
    """Do the first job, and do not end, as with a driver that hangs at exit."""
    wear.MOST_JOBS = 1  # pyright: ignore[reportConstantRedefinition]
    code = run_slot(first, pipe)
    os.kill(os.getpid(), signal.SIGSTOP)
    return code


if __name__ == "__main__":
    serve(connect(int(sys.argv[1])), run_and_linger)
