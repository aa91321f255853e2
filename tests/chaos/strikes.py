"""What is done to a running server: a seeded choice of what dies, stands still or is damaged."""

import math
import random
import signal
import sqlite3
import time
from collections import Counter
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path

import psutil

from search.linux import ATTEMPT_SCORE
from tests.chaos.damage import checkpoint, flip_a_byte, roll_back, step_back_and_migrate
from tests.chaos.far_machine import FarMachine
from tests.chaos.postgres import MortalPostgres
from tests.chaos.small_disk import fill
from tests.chaos.wire import Fault
from tests.patience import wait_while_it_moves
from tests.service.running import Server

STOPPED_LEASES = 2.0
"""How long, in lease times, what is stopped stands still."""


class Striker:
    """Strikes one server and a machine that joined it; `counts` says how often and at what.

    Args:
        server: what is struck.
        far: the other machine.
        generator: chooses.
        lease_seconds: how long leases hold there.
        url: that of our tables.
        postgres: where they are, if not in the server's data directory.
        small_disk: whether the artifacts are on a disk of their own that may be filled.
        gone_leases: how long the API is gone, in lease times.
        only: names of what is done, and of nothing else; empty: all of it.
    """

    def __init__(
        self,
        server: Server,
        far: FarMachine,
        generator: random.Random,
        *,
        lease_seconds: float,
        url: str,
        postgres: MortalPostgres | None = None,
        small_disk: bool = False,
        gone_leases: float = 3.0,
        only: tuple[str, ...] = (),
    ) -> None:
        self.damaged: set[str] = set()
        """The digests of files that were damaged; some are written again since."""
        self.counts: Counter[str] = Counter()
        self._server = server
        self._far = far
        self._generator = generator
        self._lease_seconds = lease_seconds
        self._gone_seconds = gone_leases * lease_seconds
        self._url = url
        self._postgres = postgres
        self._stopped: list[tuple[float, psutil.Process]] = []
        self._wire_until = 0.0
        self._ballast: tuple[float, Path] | None = None
        kinds: dict[str, Callable[[], bool]] = {
            "slot": self._kill_worker,
            "oom victim": self._kill_oom_victim,
            "slot stopped": self._stop_worker,
            "coordinator": lambda: self._kill_child("coordinator"),
            "api": lambda: self._kill_child("api"),
            "api gone": self._take_api_away,
            "agent": lambda: self._kill_child("agent"),
            "agent stopped": self._stop_agent,
            "far agent": lambda: _sent(self._far.agent, signal.SIGKILL),
            "far agent stopped": lambda: self._stop(self._far.agent),
            "far agent cut off": lambda: self._strike_wire("cut", 0.5, 3.0),
            "answers lost": lambda: self._strike_wire("answers lost", 0.3, 1.0),
            "requests doubled": lambda: self._strike_wire("requests doubled", 0.3, 1.0),
            "fork server": self._kill_fork_server,
            "supervisor": self._kill_supervisor,
            "everything": self._kill_everything,
            "damaged artifact": self._damage_artifact,
            "upgrade after kill -9": self._upgrade,
            "database away": self._take_database_away,
        }
        if postgres is None:
            kinds["database rolled back"] = self._roll_back
        if small_disk:
            kinds["store full"] = self._fill_store
        unknown = set(only) - set(kinds)
        if unknown:
            raise ValueError(f"there is no strike {sorted(unknown)}; there are {sorted(kinds)}")
        self._kinds = {name: act for name, act in kinds.items() if not only or name in only}
        self._due: list[str] = []

    @property
    def missing(self) -> list[str]:
        """The kinds that have struck nothing yet."""
        return [name for name in self._kinds if not self.counts[name]]

    def strike(self) -> str:
        """Do one thing; its name. Each kind comes once, in an order by chance, before any again."""
        self.mend()
        if not self._due:
            self._due = self._generator.sample(list(self._kinds), len(self._kinds))
        name = self._due.pop(0)
        with suppress(psutil.NoSuchProcess):
            if self._kinds[name]():
                self.counts[name] += 1
                return name
        # There was nothing to strike at; later there may be.
        self._due.append(name)
        return f"{name}: there is none"

    def mend(self, *, at_once: bool = False) -> None:
        """Do what an operator would: start what ended, and take away what has lasted long enough.

        Whoever stands still for longer than a lease goes on, to find its lease lost. `at_once`:
        all of it, however short it has lasted.
        """
        if self._server.has_ended:
            self._start()
            self.counts["server started by the operator"] += 1
        self._far.start()
        now = time.monotonic()
        for stopped_at, process in list(self._stopped):
            if at_once or now - stopped_at > STOPPED_LEASES * self._lease_seconds:
                self._stopped.remove((stopped_at, process))
                with suppress(psutil.NoSuchProcess):
                    process.send_signal(signal.SIGCONT)
        if at_once or now > self._wire_until:
            self._far.wire.fault = None
        if self._ballast is not None and (at_once or now > self._ballast[0]):
            self._ballast[1].unlink()
            self._ballast = None

    def _workers(self) -> list[psutil.Process]:
        return [*self._server.workers_at_work(), *self._far.workers_at_work()]

    def _kill_worker(self) -> bool:
        workers = self._workers()
        return bool(workers) and _sent(self._generator.choice(workers), signal.SIGKILL)

    def _stop_worker(self) -> bool:
        workers = self._workers()
        return bool(workers) and self._stop(self._generator.choice(workers))

    def _stop_agent(self) -> bool:
        agent = self._child("agent")
        return agent is not None and self._stop(agent)

    def _stop(self, process: psutil.Process) -> bool:
        self._stopped.append((time.monotonic(), process))
        return _sent(process, signal.SIGSTOP)

    def _kill_child(self, command: str) -> bool:
        process = self._child(command)
        return process is not None and _sent(process, signal.SIGKILL)

    def _child(self, command: str) -> psutil.Process | None:
        children = psutil.Process(self._server.pid).children()
        return next((one for one in children if command in one.cmdline()), None)

    def _kill_fork_server(self) -> bool:
        for process in self._server.processes():
            with suppress(psutil.NoSuchProcess):
                # Its children bear its name, and it comes before them.
                if any("fork_server" in word for word in process.cmdline()):
                    return _sent(process, signal.SIGKILL)
        return False

    def _kill_oom_victim(self) -> bool:
        """Kill whom the kernel would for want of memory: by its own figures, a worker."""
        scores: dict[psutil.Process, int] = {}
        for process in self._server.processes():
            with suppress(psutil.NoSuchProcess, OSError):
                scores[process] = int(Path(f"/proc/{process.pid}/oom_score").read_text())
        workers = [process for process in self._server.workers_at_work() if process in scores]
        # One that has just been forked may not have come to say so.
        if not any(_is_offered(worker) for worker in workers):
            return False
        victim = max(scores, key=lambda process: scores[process])
        assert victim in workers, f"the kernel would kill {victim.cmdline()} before a worker"
        return _sent(victim, signal.SIGKILL)

    def _strike_wire(self, fault: Fault, least: float, most: float) -> bool:
        """Have the other machine's exchange suffer for some lease times, once it has been heard."""
        seconds = self._generator.uniform(least, most) * self._lease_seconds
        wire = self._far.wire
        answered, struck = wire.answered, wire.struck.total()

        def comes_to(holds: Callable[[], bool]) -> None:
            def mended() -> bool:
                self.mend()
                return holds()

            wait_while_it_moves(mended, what=f"requests of the far agent; log {self._far.log}")

        # One that is just being started asks nothing that could be struck.
        comes_to(lambda: wire.answered > answered)
        self._wire_until = math.inf
        wire.fault = fault
        comes_to(lambda: wire.struck.total() > struck)
        self._wire_until = time.monotonic() + seconds
        return True

    def _take_api_away(self) -> bool:
        """Have nobody answer for a long while, in which nobody starts another one."""
        api, supervisor = self._child("api"), psutil.Process(self._server.pid)
        if api is None:
            return False
        supervisor.send_signal(signal.SIGSTOP)
        try:
            _sent(api, signal.SIGKILL)
            time.sleep(self._gone_seconds)
        finally:
            supervisor.send_signal(signal.SIGCONT)
        return True

    def _kill_supervisor(self) -> bool:
        """Kill the one that holds all others, which end with it."""
        below = self._server.processes()[1:]
        for _, process in self._stopped:
            with suppress(psutil.NoSuchProcess):
                # Who stands still cannot hear that it is to end.
                process.send_signal(signal.SIGCONT)
        self._stopped.clear()
        _sent(psutil.Process(self._server.pid), signal.SIGKILL)
        wait_while_it_moves(
            lambda: self._server.has_ended and not any(one.is_running() for one in below),
            what="the end of what the killed supervisor had started",
        )
        self._start()
        return True

    def _fill_store(self) -> bool:
        if self._ballast is not None:
            return False
        until = time.monotonic() + self._generator.uniform(0.3, 2) * self._lease_seconds
        store = self._server.data_dir / "artifacts"
        self._ballast = (until, fill(store, leave=self._generator.choice((0, 300_000))))
        return True

    def _kill_everything(self) -> bool:
        self._end_everything()
        self._start()
        return True

    def _upgrade(self) -> bool:
        """Have a newer program take over what an older one left that was killed."""
        self._end_everything()
        step_back_and_migrate(self._url, self._server.data_dir)
        self._start()
        return True

    def _roll_back(self) -> bool:
        """Lose the last seconds of our tables, of which Optuna's know, and the store."""
        database = self._server.data_dir / "reflectory.db"
        checkpoint(database)
        time.sleep(self._generator.uniform(0.5, 3))
        self._end_everything()
        lost = roll_back(database)
        self._start()
        return lost

    def _damage_artifact(self) -> bool:
        digest = flip_a_byte(self._server.data_dir / "artifacts", self._generator)
        if digest is None:
            return False
        self.damaged.add(digest)
        return True

    def _end_everything(self) -> None:
        processes = self._server.processes()
        self._server.kill_everything()
        wait_while_it_moves(
            lambda: not any(process.is_running() for process in processes),
            what="the end of what was killed",
        )

    def _start(self) -> None:
        self._server.launch()
        wait_while_it_moves(
            lambda: self._server.answers("/readyz") == 200,
            what=f"a ready server; its log is {self._server.log}",
        )

    def _take_database_away(self) -> bool:
        """Kill PostgreSQL and start it later; or have somebody else write into SQLite meanwhile."""
        seconds = self._generator.uniform(0, 1.5) * self._lease_seconds
        if self._postgres is not None:
            self._postgres.kill()
            time.sleep(seconds)
            self._postgres.start()
            return True
        path = self._server.data_dir / "reflectory.db"
        with closing(sqlite3.connect(path, timeout=30, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            time.sleep(seconds)
            other.execute("ROLLBACK")
        return True


def _is_offered(worker: psutil.Process) -> bool:
    """Whether the process has told the kernel to kill it first."""
    with suppress(OSError):
        score = int(Path(f"/proc/{worker.pid}/oom_score_adj").read_text())
        return score >= ATTEMPT_SCORE
    return False


def _sent(process: psutil.Process, sign: signal.Signals) -> bool:
    process.send_signal(sign)
    return True
