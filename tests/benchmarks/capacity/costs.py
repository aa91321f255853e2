"""What one call costs: processor time of the API and of PostgreSQL, statements, and the wait.

Each kind of call is made many times in a row by one client, over a real API process and a real
PostgreSQL. Processor time is counted by the kernel, so that other work on the machine blurs the
waits and hardly the costs.
"""

import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import psutil
from sqlalchemy import Engine, event

from search.running.attempts import AttemptHandler
from search.training.jobs import Completion, EpochReport, Heartbeat
from storage.records import StudyRecord, TrialState
from tests.benchmarks.asks import SAMPLERS, seconds_per_ask
from tests.benchmarks.capacity.processes import Meter, repeated, used
from tests.conftest import PostgresServer
from tests.search.honest_words import files, resume_file
from tests.service.processes import running_api
from tests.service.site import Lease, Site

RESUME_BYTES = 40_000
"""What is new in each state to resume from, beside the weights and moments of a small network."""


@dataclass(frozen=True)
class Cost:
    """One call of a kind."""

    api: float
    """Seconds of processor time of the API process."""
    database: float
    """Seconds of processor time of PostgreSQL."""
    wait: float
    """Seconds until the answer, with one client on a machine with whatever else it does."""
    statements: int | None = None
    """Statements in the database, the beginning and the end of transactions not among them."""


@dataclass(frozen=True)
class Costs:
    """Everything that is measured alone."""

    calls: Mapping[str, Cost]
    event: float
    """Seconds of the API for an event that one listener hears."""
    asks: Mapping[str, Mapping[int, float]]
    """Seconds per ask, by sampler and by how many trials it knows."""


def measured(server: PostgresServer, *, times: int, trials: tuple[int, ...]) -> Costs:
    """Measure them."""
    with tempfile.TemporaryDirectory(prefix="reflectory-costs-") as name:
        site = Site(
            Path(name) / "site", database_url=server.create_database(), requests_per_minute=10**9
        )
        study = site.study(budget={"trials": 10 * times, "epochs": 100_000})
        site.run(study)
        postmaster = psutil.Process(_pid_of(server))
        with running_api(site.settings) as api:
            client = httpx2.Client(base_url=api.url, timeout=30)
            processes = {"api": [psutil.Process(api.process.pid)], "database": [postmaster]}
            bench = _Bench(site, study, client, processes, times=times)
            calls = bench.calls()
            told = bench.per_event()
        site.close()
    asks = {
        sampler: {count: min(seconds_per_ask(SAMPLERS[sampler], count, asks=3)) for count in trials}
        for sampler in ("tpe", "nsga2", "known_cost")
    }
    return Costs(calls=calls, event=told, asks=asks)


def _pid_of(server: PostgresServer) -> int:
    pid = server._server.get_pid()  # pyright: ignore[reportPrivateUsage]
    assert pid is not None
    return pid


class _Bench:
    """A study whose attempts speak, one after the other."""

    def __init__(
        self,
        site: Site,
        study: StudyRecord,
        client: httpx2.Client,
        processes: Mapping[str, list[psutil.Process]],
        *,
        times: int,
    ) -> None:
        self._site = site
        self._study = study
        self._client = client
        self._processes = processes
        self._times = times
        self._trials = 0

    def calls(self) -> dict[str, Cost]:
        lease = self._attempt()
        epochs = iter(range(1, 10**6))
        beat = Heartbeat(held_seconds=1.0).model_dump_json()

        def epoch(_turn: int) -> None:
            self._say(lease, "metrics", report(next(epochs)).model_dump_json())

        states = [resume_file(lease.job, kept_bytes=RESUME_BYTES) for _ in range(self._times)]
        found = {
            "heartbeat": self._cost(lambda _turn: self._say(lease, "heartbeat", beat)),
            "epoch report": self._cost(epoch),
            "state to resume from": self._cost(
                lambda turn: self._put(lease, "resume", states[turn])
            ),
            "job": self._cost(lambda _turn: self._get(lease, "job")),
        }
        leases = [self._attempt() for _ in range(self._times)]
        # Each trial's own bytes: two that are alike are stored once.
        sent = [files(one.job, seed=turn) for turn, one in enumerate(leases)]
        for one in leases:
            for trained in (1, 2, 3):
                self._say(one, "metrics", report(trained).model_dump_json())

        def complete(turn: int) -> None:
            for role in ("checkpoint", "report"):
                self._put(leases[turn], role, sent[turn][role])
            self._say(leases[turn], "complete", completion())

        found["completion with its files"] = self._cost(complete)
        handler = AttemptHandler(self._site.database, self._site.store, lease_seconds=30.0)
        other = self._attempt()
        counted: Mapping[str, Callable[[], Any]] = {
            "heartbeat": lambda: handler.heartbeat(other.attempt, other.token, Heartbeat()),
            "epoch report": lambda: handler.epoch(other.attempt, other.token, report(1)),
            "job": lambda: handler.job(other.attempt, other.token),
        }
        for name, call in counted.items():
            call()
            with _statements() as said:
                call()
            found[name] = Cost(**{**vars(found[name]), "statements": len(said)})
        return found

    def per_event(self, *, listeners: int = 40, events: int = 40) -> float:
        """What an event costs more that somebody hears."""
        (api,) = self._processes["api"]
        with ExitStack() as held:
            streams = [
                held.enter_context(
                    self._client.stream(
                        "GET",
                        f"/v1/studies/{self._study.id}/events",
                        headers={"Last-Event-ID": str(self._site.last_event(self._study))},
                    )
                ).iter_lines()
                for _ in range(listeners)
            ]
            before = used(api)
            begun = time.monotonic()
            for number in range(events):
                self._site.event(self._study, number=number)
                time.sleep(0.05)
            for lines in streams:
                heard = 0
                while heard < events:
                    heard += next(lines).startswith("data:")
            busy, wall = used(api) - before, time.monotonic() - begun
        before, begun = used(api), time.monotonic()
        time.sleep(2.0)
        idle = (used(api) - before) / (time.monotonic() - begun)
        return max(0.0, busy - idle * wall) / (listeners * events)

    def _attempt(self) -> Lease:
        number = self._trials
        self._trials += 1
        self._site.trial(self._study, number, state=TrialState.RUNNING)
        # The lease of a trial ends those before it; each trial here has its own.
        return self._site.lease(self._study, number)

    def _cost(self, call: Callable[[int], None]) -> Cost:
        meter = Meter(self._processes)
        wait = repeated(self._times, call)
        spent = meter.seconds()
        return Cost(
            api=spent["api"] / self._times, database=spent["database"] / self._times, wait=wait
        )

    def _say(self, lease: Lease, call: str, body: str) -> None:
        headers = {**lease.headers, "Content-Type": "application/json"}
        answer = self._client.post(lease.path(call), content=body, headers=headers)
        assert answer.status_code == 200, answer.text

    def _put(self, lease: Lease, role: str, content: bytes) -> None:
        answer = self._client.put(
            lease.path(f"artifacts/{role}"), content=content, headers=lease.headers
        )
        assert answer.status_code == 200, answer.text

    def _get(self, lease: Lease, call: str) -> None:
        answer = self._client.get(lease.path(call), headers=lease.headers)
        assert answer.status_code == 200, answer.text


def report(epoch: int, *, lift: float = 0.0) -> EpochReport:
    """An epoch of a curve that goes the way of curves, a little better or worse than another."""
    return EpochReport(
        epoch=epoch,
        train_loss=2.3 * 0.97**epoch,
        validation=0.95 - 0.85 * 0.95**epoch + lift,
        gradient_first=0.01,
        gradient_last=0.2,
        seconds=1.0,
        held_seconds=float(epoch),
    )


def completion() -> str:
    """The last word of an attempt that was stopped after three epochs."""
    return Completion(
        outcome="stopped",
        quality=report(3).validation,
        test_quality=report(3).validation,
        best_epoch=3,
        epochs_trained=3,
        held_seconds=3.0,
    ).model_dump_json()


@contextmanager
def _statements() -> Iterator[list[str]]:
    """Every statement that this process sends meanwhile."""
    said: list[str] = []

    def note(_c: Any, _cursor: Any, statement: str, *_rest: Any) -> None:
        said.append(statement)

    event.listen(Engine, "before_cursor_execute", note)
    try:
        yield said
    finally:
        event.remove(Engine, "before_cursor_execute", note)


def table(costs: Costs) -> str:
    """The costs as a table."""
    lines = [
        "| call | API, ms of processor | PostgreSQL, ms | statements | answered after, ms |",
        "|---|---:|---:|---:|---:|",
    ]
    for name, cost in costs.calls.items():
        statements = "" if cost.statements is None else cost.statements
        lines.append(
            f"| {name} | {1e3 * cost.api:.2f} | {1e3 * cost.database:.2f} | {statements} | "
            f"{1e3 * cost.wait:.1f} |"
        )
    lines += [
        f"| an event, for each who listens | {1e3 * costs.event:.2f} | | | |",
        "",
        "| ask, ms of the coordinator | "
        + " | ".join(f"{count} trials" for count in next(iter(costs.asks.values())))
        + " |",
        "|---|" + "---:|" * len(next(iter(costs.asks.values()))),
    ]
    for sampler, found in costs.asks.items():
        cells = " | ".join(f"{1e3 * seconds:.0f}" for seconds in found.values())
        lines.append(f"| {sampler} | {cells} |")
    return "\n".join(lines)
