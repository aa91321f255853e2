"""What is done to a running server: a seeded choice of what dies, stands still or is damaged."""

import random
import signal
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import psutil

from search.linux import ATTEMPT_SCORE
from tests.chaos.damage import checkpoint, flip_a_byte, roll_back, step_back_and_migrate
from tests.chaos.postgres import MortalPostgres
from tests.patience import wait_while_it_moves
from tests.service.running import Server


class Striker:
    """Strikes one server, again and again; `counts` says how often and at what."""

    def __init__(
        self,
        server: Server,
        generator: random.Random,
        *,
        lease_seconds: float,
        url: str,
        postgres: MortalPostgres | None = None,
    ) -> None:
        """`url` is that of our tables."""
        self.damaged: set[str] = set()
        """The digests of files that were damaged; some are written again since."""
        self.counts: Counter[str] = Counter()
        self._server = server
        self._generator = generator
        self._lease_seconds = lease_seconds
        self._url = url
        self._postgres = postgres
        self._stopped: list[tuple[float, psutil.Process]] = []
        self._weights: dict[str, tuple[float, Callable[[], bool]]] = {
            "worker": (6, self._kill_worker),
            "oom victim": (3, self._kill_oom_victim),
            "worker stopped": (2, self._stop_worker),
            "coordinator": (3, lambda: self._kill_child("coordinator")),
            "api": (3, lambda: self._kill_child("api")),
            "agent": (3, lambda: self._kill_child("agent")),
            "agent stopped": (2, self._stop_agent),
            "fork server": (2, self._kill_fork_server),
            "everything": (2, self._kill_everything),
            "damaged artifact": (2, self._damage_artifact),
            "upgrade after kill -9": (1, self._upgrade),
        }
        if postgres is not None:
            self._weights["database"] = (2, self._kill_database)
        else:
            self._weights["database rolled back"] = (2, self._roll_back)

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
            self._start()
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

    def _kill_database(self) -> bool:
        assert self._postgres is not None
        self._postgres.kill()
        time.sleep(self._generator.uniform(0, 2))
        self._postgres.start()
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
