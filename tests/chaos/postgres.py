"""A PostgreSQL that can be killed as a power failure would, and started again."""

from pathlib import Path

import psutil

from tests.conftest import PostgresServer


class MortalPostgres(PostgresServer):
    """Its data folder and its address outlive its processes."""

    def kill(self) -> None:
        """SIGKILL the postmaster and every process below it."""
        pid = self._server.get_pid()
        assert pid is not None
        postmaster = psutil.Process(pid)
        # In this order: a living postmaster would begin to recover from its children's deaths.
        killed = [postmaster, *postmaster.children(recursive=True)]
        for process in killed:
            process.kill()
        psutil.wait_procs(killed, timeout=10)

    def start(self) -> None:
        """Start it on what the last one left, which it recovers."""
        (Path(self._server.pgdata) / "postmaster.pid").unlink(missing_ok=True)
        self._server.ensure_postgres_running()
