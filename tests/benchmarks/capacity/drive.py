"""A real site under a farm of machines: what it carries, and what each process takes for it."""

import asyncio
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import psutil

from search.tasks import DataSources
from storage.engine import Database
from tests.benchmarks.capacity.farm import Farm, Trials
from tests.benchmarks.capacity.processes import Meter
from tests.conftest import PostgresServer
from tests.service.running import wait_until


@dataclass(frozen=True, kw_only=True)
class Load:
    """What a site is to carry."""

    attempts: int
    slots_per_machine: int
    epoch_seconds: float
    epochs: int
    lease_seconds: float
    apis: int
    studies: int
    fill_seconds: float
    """How long the slots may take to fill; what is observed then is told with how many were."""


@dataclass(frozen=True, kw_only=True)
class Observed:
    """What it carried, over the time of a steady state."""

    seconds: float
    attempts: float
    """Attempts that trained, on average."""
    memory: dict[str, float]
    """MiB (PSS) of each kind of process at the end."""
    machine_load: float
    """The machine's load average at the end."""
    trials_per_second: float
    filled_after: float
    """Seconds from the first study to the time when 98 of 100 slots had something on them."""
    rates: dict[str, float]
    """Calls per second, by their kind."""
    latencies: dict[str, tuple[float, float]]
    """The half and the slowest hundredth of each kind wait longer than this, in seconds."""
    shares: dict[str, float]
    """Cores that each kind of process took, and that the farm took itself."""
    leases_lost: int
    faults: int
    refused: tuple[str, ...]


def drive(load: Load, *, minutes: float, postgres: PostgresServer | None) -> Observed:
    """Start a site, fill it, and watch it for so long."""
    with ExitStack() as held:
        folder = Path(held.enter_context(tempfile.TemporaryDirectory(prefix="reflectory-site-")))
        site = held.enter_context(_site(folder, load, postgres))
        return asyncio.run(site.watched(load, minutes=minutes))


class _Site:
    """API processes and a coordinator, each as the command that a site runs."""

    def __init__(self, folder: Path, load: Load, postgres: PostgresServer | None) -> None:
        sqlite = [f"sqlite:///{folder / name}.db" for name in ("reflectory", "optuna")]
        urls = [postgres.create_database() for _ in "12"] if postgres else sqlite
        database = Database(urls[0])
        database.migrate()
        database.dispose()
        self._folder = folder
        self._common = {
            **{name: value for name, value in os.environ.items() if "REFLECTORY_" not in name},
            "REFLECTORY_DATABASE_URL": urls[0],
            "REFLECTORY_OPTUNA_URL": urls[1],
            "REFLECTORY_ARTIFACTS_DIR": str(folder / "artifacts"),
            "REFLECTORY_LEASE_SECONDS": str(load.lease_seconds),
            "REFLECTORY_WORKERS": "0",
            "REFLECTORY_SECRET": "a secret of thirty-two letters, or more",
        }
        ports = [_free_port() for _ in range(load.apis)]
        self.urls = [f"http://127.0.0.1:{port}" for port in ports]
        self.apis = [
            self._start("api", f"api-{index}", REFLECTORY_PORT=str(port))
            for index, port in enumerate(ports)
        ]
        self.coordinator = self._start("coordinator", "coordinator", REFLECTORY_URL=self.urls[0])
        self._postmaster = None
        if postgres is not None:
            pid = postgres._server.get_pid()  # pyright: ignore[reportPrivateUsage]
            assert pid is not None
            self._postmaster = psutil.Process(pid)
        for url in self.urls:
            wait_until(lambda url=url: _answers(url), what=f"an answer of {url}", seconds=300)

    def _start(self, command: str, name: str, **given: str) -> "subprocess.Popen[bytes]":
        folder = self._folder / name
        folder.mkdir()
        with (self._folder / f"{name}.log").open("wb") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "service.cli", command],
                env={**self._common, "REFLECTORY_DATA_DIR": str(folder), **given},
                stdout=log,
                stderr=log,
            )

    def end(self) -> None:
        """Stop everything."""
        for process in (self.coordinator, *self.apis):
            process.terminate()
        for process in (self.coordinator, *self.apis):
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    async def watched(self, load: Load, *, minutes: float) -> Observed:
        """Fill every slot, wait until it is quiet, and watch."""
        farm = Farm(
            self.urls,
            slots=load.attempts,
            per_machine=min(load.slots_per_machine, load.attempts),
            trials=Trials(epoch_seconds=load.epoch_seconds, lease_seconds=load.lease_seconds),
            sources=DataSources(cache=self._folder / "cache", folder=None),
        )
        over = False
        working = asyncio.create_task(farm.run(lambda: over))
        begun = time.monotonic()
        for number in range(load.studies):
            await asyncio.to_thread(self._submit, load, number)
        until = begun + load.fill_seconds
        while farm.seen.running < 0.98 * load.attempts and time.monotonic() < until:
            await asyncio.sleep(0.5)
            if working.done():
                working.result()
        filled = time.monotonic() - begun
        # One lease more, for what happens together at the beginning to drift apart.
        await asyncio.sleep(load.lease_seconds)
        meter = Meter(self._processes())
        start, lost, faults = time.monotonic(), farm.seen.leases_lost, farm.seen.faults
        counts: list[int] = []
        ended = farm.seen.ended
        while time.monotonic() - start < 60 * minutes:
            counts.append(farm.seen.running)
            await asyncio.sleep(0.5)
        seconds = time.monotonic() - start
        shares = meter.shares()
        memory = {
            name: sum(one.memory_full_info().pss for one in group) / 2**20
            for name, group in self._processes().items()
            if name in ("API", "coordinator")
        }
        recent = {
            kind: sorted(took for at, took in calls if at > start)
            for kind, calls in farm.seen.latencies.items()
        }
        over = True
        await working
        return Observed(
            memory=memory,
            machine_load=os.getloadavg()[0],
            seconds=seconds,
            attempts=sum(counts) / len(counts),
            trials_per_second=(farm.seen.ended - ended) / seconds,
            filled_after=filled,
            rates={kind: len(took) / seconds for kind, took in recent.items()},
            latencies={
                kind: (took[len(took) // 2], took[int(0.99 * len(took))])
                for kind, took in recent.items()
                if took
            },
            shares=shares,
            leases_lost=farm.seen.leases_lost - lost,
            faults=farm.seen.faults - faults,
            refused=tuple(farm.seen.refused[:3]),
        )

    def _processes(self) -> dict[str, list[psutil.Process]]:
        return {
            "API": [psutil.Process(api.pid) for api in self.apis],
            "coordinator": [psutil.Process(self.coordinator.pid)],
            "PostgreSQL": [self._postmaster] if self._postmaster is not None else [],
            "farm": [_Alone(os.getpid())],
        }

    def _submit(self, load: Load, number: int) -> None:
        spec: dict[str, Any] = {
            "name": f"capacity {number}",
            "task": {"kind": "digits"},
            "architectures": ["rnn"],
            "parametrizations": ["dense", "low_rank"],
            "space": {"hidden_size": {"low": 8, "high": 64, "step": 8}},
            "objectives": ["quality", "parameters"],
            "sampler": {"kind": "random"},
            "budget": {"trials": 100_000, "epochs": load.epochs},
            "seed": number,
        }
        answer = httpx2.post(f"{self.urls[0]}/v1/studies", json=spec, timeout=60)
        assert answer.status_code == 202, answer.text


class _Alone(psutil.Process):
    """A process without those below it: the site's are counted by themselves."""

    def children(self, recursive: bool = False) -> list[psutil.Process]:  # noqa: ARG002
        return []


@contextmanager
def _site(folder: Path, load: Load, postgres: PostgresServer | None) -> Iterator[_Site]:
    site = _Site(folder, load, postgres)
    try:
        yield site
    finally:
        site.end()


def _free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def _answers(url: str) -> bool:
    with suppress(httpx2.TransportError):
        return httpx2.get(f"{url}/healthz", timeout=5).status_code == 200
    return False
