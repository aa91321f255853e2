"""A machine with one slot that joins a server, perhaps with another fork server than ours.

A program, with the server's URL, the machine's folder, and the fork server's module.
"""

import signal
import sys
import threading
from multiprocessing.connection import Connection
from pathlib import Path

# For its fork server, which is forked from here.
import search.agents.forking.fork_server  # noqa: F401
from search.agents.forking.server_process import Launched, by_exec
from service.processes.working import work
from service.settings import Settings
from tests import preloaded


def run(server: str, folder: Path, fork_server: str) -> None:
    """Work until killed, or told to end."""
    preloaded.install()
    preloaded.fork_from_here()

    def launch(_module: str, pipe: Connection, errors: Path) -> Launched:
        return by_exec(fork_server, pipe, errors)

    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    work(
        Settings(data_dir=folder, workers=1),
        server=server,
        key=None,
        name=None,
        stop=stop,
        announce=lambda _name, _slots: None,
        launch=launch,
    )


if __name__ == "__main__":
    run(sys.argv[1], Path(sys.argv[2]), sys.argv[3])
