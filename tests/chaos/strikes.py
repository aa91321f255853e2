"""What is done to a running server: a seeded choice of processes that die, or stand still."""

import random
import signal
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress

import psutil

from tests.chaos.postgres import MortalPostgres
from tests.service.running import Server


class Striker:
    """Strikes one server, again and again; `counts` says how often and at what."""

    def __init__(
        self,
        server: Server,
        generator: random.Random,
        *,
        lease_seconds: float,
        postgres: MortalPostgres | None = None,
    ) -> None:
        self.counts: Counter[str] = Counter()
        self._server = server
        self._generator = generator
        self._lease_seconds = lease_seconds
        self._postgres = postgres
        self._stopped: list[tuple[float, psutil.Process]] = []
        self._weights: dict[str, tuple[float, Callable[[], bool]]] = {
            "worker": (8, self._kill_worker),
            "worker stopped": (2, self._stop_worker),
            "coordinator": (3, lambda: self._kill_child("coordinator")),
            "api": (3, lambda: self._kill_child("api")),
            "fork server": (2, self._kill_fork_server),
            "everything": (2, self._kill_everything),
        }
        if postgres is not None:
            self._weights["database"] = (2, self._kill_database)

    def strike(self) -> str:
        """Do one thing by chance; its name."""
        self.mend()
        names = list(self._weights)
        weights = [self._weights[name][0] for name in names]
        name = self._generator.choices(names, weights)[0]
        _, act = self._weights[name]
        with suppress(psutil.NoSuchProcess):
            if act():
                self.counts[name] += 1
                return name
        return f"{name}: there is none"

    def mend(self) -> None:
        """Do what an operator would: start a server that gave itself up.

        Whoever stands still for longer than a lease goes on, to find its lease lost.
        """
        if self._server.has_ended:
            self._server.start()
            self.counts["server started by the operator"] += 1
        for stopped_at, process in list(self._stopped):
            if time.monotonic() - stopped_at > 1.5 * self._lease_seconds:
                self._stopped.remove((stopped_at, process))
                with suppress(psutil.NoSuchProcess):
                    process.send_signal(signal.SIGCONT)

    def _kill_worker(self) -> bool:
        workers = self._server.workers_at_work()
        return bool(workers) and _sent(self._generator.choice(workers), signal.SIGKILL)

    def _stop_worker(self) -> bool:
        workers = self._server.workers_at_work()
        if not workers:
            return False
        worker = self._generator.choice(workers)
        self._stopped.append((time.monotonic(), worker))
        return _sent(worker, signal.SIGSTOP)

    def _kill_child(self, command: str) -> bool:
        for process in psutil.Process(self._server.pid).children():
            if command in process.cmdline():
                return _sent(process, signal.SIGKILL)
        return False

    def _kill_fork_server(self) -> bool:
        for process in self._server.processes():
            with suppress(psutil.NoSuchProcess):
                # Its children bear its name, and it comes before them.
                if any("fork_server" in word for word in process.cmdline()):
                    return _sent(process, signal.SIGKILL)
        return False

    def _kill_everything(self) -> bool:
        self._server.kill_everything()
        self._server.start()
        return True

    def _kill_database(self) -> bool:
        assert self._postgres is not None
        self._postgres.kill()
        time.sleep(self._generator.uniform(0, 2))
        self._postgres.start()
        return True


def _sent(process: psutil.Process, sign: signal.Signals) -> bool:
    process.send_signal(sign)
    return True
