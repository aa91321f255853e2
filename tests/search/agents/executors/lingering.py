"""A fork server whose attempts stand still for good when they have said their last word."""

import os
import signal
import sys

from search.agents.executor import AttemptTicket
from search.agents.forking.fork_server import run_attempt
from search.agents.forking.loop import connect, serve


def run_and_linger(ticket: AttemptTicket) -> int:
    """Do the ticket's job, and do not end, as with a driver that hangs at exit."""
    code = run_attempt(ticket)
    os.kill(os.getpid(), signal.SIGSTOP)
    return code


if __name__ == "__main__":
    serve(connect(int(sys.argv[1])), run_and_linger)
