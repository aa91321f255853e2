"""Machines without processors: they join, poll and speak as workers do, and train nothing.

One process plays all of them. Everything that the service sees is real: machines with their slots,
lease tokens, jobs, heartbeats when nothing else was said for a third of the lease, epochs with
plausible curves, a state to resume from after each, checkpoints and reports, last words, exits.
"""

import asyncio
import functools
import hashlib
import random
import secrets
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import Literal

import httpx2
from pydantic import TypeAdapter

from models.checkpoint import save_bytes
from models.model import ModelSpec
from models.report import parameter_report
from search.agents.protocol import (
    AttemptExit,
    Exits,
    Join,
    Joined,
    MachineSlot,
    Offer,
    Orders,
    Poll,
)
from search.tasks import DataSources
from search.training.jobs import (
    Completion,
    Heartbeat,
    Job,
    MeasureJob,
    PrepareJob,
    TrainJob,
    Verdict,
)
from tests.benchmarks.capacity.costs import RESUME_BYTES, report
from tests.search.honest_words import measurement, resume_file

_JOB: TypeAdapter[Job] = TypeAdapter(Job)
_PATIENCE_SECONDS = 240.0


@dataclass(frozen=True)
class Trials:
    """How the trials are that nobody trains."""

    epoch_seconds: float
    lease_seconds: float


@dataclass
class Seen:
    """What the machines saw."""

    latencies: dict[str, list[tuple[float, float]]] = field(
        default_factory=lambda: defaultdict[str, list[tuple[float, float]]](list)
    )
    """When each call was answered, and after how long, by its kind."""
    running: int = 0
    ended: int = 0
    leases_lost: int = 0
    faults: int = 0
    """Calls that were answered with 5xx, or not at all, and made again."""
    refused: list[str] = field(default_factory=list[str])


class Farm:
    """So many slots, on machines that ask API processes in turn."""

    def __init__(
        self, urls: list[str], *, slots: int, per_machine: int, trials: Trials, sources: DataSources
    ) -> None:
        self.seen = Seen()
        self._trials = trials
        self._sources = sources
        self._urls = urls
        limits = httpx2.Limits(max_connections=None, max_keepalive_connections=None)
        self._clients = [
            httpx2.AsyncClient(
                base_url=url, timeout=120, limits=limits, trust_env=False, verify=False
            )
            for url in urls
        ]
        counts = [per_machine] * (slots // per_machine)
        if slots % per_machine:
            counts.append(slots % per_machine)
        self._machines = [
            _Machine(self, self._clients[index % len(urls)], index, count)
            for index, count in enumerate(counts)
        ]

    async def run(self, until: Callable[[], bool]) -> None:
        """Work until a condition holds, then fall silent at once."""
        tasks = [asyncio.create_task(machine.run()) for machine in self._machines]
        while not until():
            for task in tasks:
                if task.done():
                    task.result()
            await asyncio.sleep(0.2)
        for machine in self._machines:
            machine.silence()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for client in self._clients:
            await client.aclose()

    async def call(
        self, http: httpx2.AsyncClient, kind: str, method: str, path: str, **given: object
    ) -> httpx2.Response:
        """Ask until it is answered, and note how long each answer took."""
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while True:
            begun = time.monotonic()
            try:
                answer = await http.request(method, path, **given)  # pyright: ignore[reportArgumentType]
            except httpx2.TransportError:
                answer = None
            now = time.monotonic()
            if answer is not None and not answer.is_server_error:
                self.seen.latencies[kind].append((now, now - begun))
                return answer
            self.seen.faults += 1
            if now > deadline:
                raise TimeoutError(f"{kind}: no answer for {_PATIENCE_SECONDS:g} s")
            await asyncio.sleep(random.uniform(0.5, 1.0))

    async def attempt(self, http: httpx2.AsyncClient, offer: Offer) -> None:
        """One attempt from its job to its last word."""
        self.seen.running += 1
        try:
            await _Attempt(self, http, offer, self._trials, self._sources).run()
            self.seen.ended += 1
        except _LeaseLost as lost:
            self.seen.leases_lost += 1
            self.seen.refused.append(str(lost))
        finally:
            self.seen.running -= 1


class _LeaseLost(Exception):
    """The service does not take the attempt's word any more."""


class _Machine:
    """One machine that joined."""

    def __init__(self, farm: Farm, http: httpx2.AsyncClient, index: int, slots: int) -> None:
        self._farm = farm
        self._http = http
        self._id, self._session = secrets.token_hex(16), secrets.token_hex(16)
        self._index = index
        self._slots = slots
        self._running: dict[str, asyncio.Task[None]] = {}
        self._ending: dict[str, float] = {}

    async def run(self) -> None:
        slots = tuple(
            MachineSlot(name=f"cpu-{number}", device="cpu", model="no processor", share=1.0)
            for number in range(self._slots)
        )
        join = Join(
            machine=self._id,
            session=self._session,
            name=f"farm-{self._index}",
            version=version("reflectory"),
            slots=slots,
        )
        answer = await self._post("join", "/v1/agents", join.model_dump_json())
        Joined.model_validate_json(answer.content)
        number = 0
        while True:
            number += 1
            poll = Poll(
                session=self._session,
                number=number,
                running=tuple(self._running),
                ending={name: self._ending[name] for name in self._ending if name in self._running},
            )
            answer = await self._post("poll", f"/v1/agents/{self._id}/poll", poll.model_dump_json())
            orders = Orders.model_validate_json(answer.content)
            for offer in orders.start:
                if offer.attempt not in self._running:
                    task = asyncio.create_task(self._attempt(offer))
                    self._running[offer.attempt] = task
            for end in orders.end:
                self._ending[end.attempt] = end.grace_seconds
                if end.attempt in self._running:
                    self._running[end.attempt].cancel()

    def silence(self) -> None:
        for task in self._running.values():
            task.cancel()

    async def _attempt(self, offer: Offer) -> None:
        code = 0
        try:
            await self._farm.attempt(self._http, offer)
        except asyncio.CancelledError:
            if offer.attempt not in self._ending:
                raise
            code = 143
        ended = AttemptExit(attempt=offer.attempt, returncode=code, detail=f"exit code {code}")
        exits = Exits(session=self._session, exits=(ended,))
        await self._post("exit", f"/v1/agents/{self._id}/exits", exits.model_dump_json())
        del self._running[offer.attempt]

    async def _post(self, kind: str, path: str, body: str) -> httpx2.Response:
        headers = {"Content-Type": "application/json"}
        answer = await self._farm.call(
            self._http, kind, "POST", path, content=body, headers=headers
        )
        answer.raise_for_status()
        return answer


class _Attempt:
    """One lease."""

    def __init__(
        self,
        farm: Farm,
        http: httpx2.AsyncClient,
        offer: Offer,
        trials: Trials,
        sources: DataSources,
    ) -> None:
        self._farm, self._http, self._offer = farm, http, offer
        self._trials, self._sources = trials, sources
        self._begun = time.monotonic()
        self._said_at = time.monotonic()

    async def run(self) -> None:
        answer = await self._call("job", "GET", "job")
        job = _JOB.validate_json(answer.content)
        if isinstance(job, TrainJob):
            await self._train(job)
        elif isinstance(job, MeasureJob):
            await self._measure(job)
        else:
            await self._prepare(job)

    async def _prepare(self, job: PrepareJob) -> None:
        splits = await asyncio.to_thread(job.task.load, self._sources)
        metric = job.task.metric
        found = {**splits.sizes, "metric": metric.name, "baseline": metric.baseline}
        await self._say("complete", Completion(outcome="complete", prepared=found))

    async def _measure(self, job: MeasureJob) -> None:
        for shape in job.shapes:
            speed = 1e9 / shape.model.parameter_count()
            await self._say(
                "measurement",
                measurement(job, shape, speed=speed, ratio=0.5),
            )
        await self._say("complete", Completion(outcome="complete"))

    async def _train(self, job: TrainJob) -> None:
        # What an earlier attempt stored is asked for, as a worker does; training starts anew.
        await self._call("resume", "GET", "artifacts/resume")
        outcome: Literal["complete", "stopped"] = "complete"
        lift = random.uniform(-0.02, 0.02)
        epoch = 0
        while epoch < job.epochs and outcome == "complete":
            epoch += 1
            await self._while_training(self._trials.epoch_seconds * random.uniform(0.9, 1.1))
            verdict = await self._say("metrics", report(epoch, lift=lift))
            state = resume_file(job, epoch=epoch, kept_bytes=RESUME_BYTES)
            await self._put("resume", state)
            if verdict.verdict == "stop":
                outcome = "stopped"
        for role, content in _files(job.trial.model.model_dump_json()).items():
            await self._put(role, content)
        last = report(epoch, lift=lift)
        await self._say(
            "complete",
            Completion(
                outcome=outcome,
                quality=last.validation,
                test_quality=last.validation,
                best_epoch=epoch,
                epochs_trained=epoch,
                held_seconds=time.monotonic() - self._begun,
            ),
        )

    async def _while_training(self, seconds: float) -> None:
        """Say nothing but heartbeats, each when nothing was said for a third of the lease."""
        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            due = self._said_at + self._trials.lease_seconds / 3 - time.monotonic()
            if due <= 0:
                held = time.monotonic() - self._begun
                await self._say("heartbeat", Heartbeat(held_seconds=held))
                continue
            await asyncio.sleep(min(left, due))

    async def _say(self, call: str, body: object) -> Verdict:
        content = body.model_dump_json()  # pyright: ignore[reportAttributeAccessIssue]
        headers = {"Content-Type": "application/json"}
        answer = await self._call(call, "POST", call, content=content, headers=headers)
        self._said_at = time.monotonic()
        return Verdict.model_validate_json(answer.content)

    async def _put(self, role: str, content: bytes) -> None:
        headers = {"Content-SHA256": hashlib.sha256(content).hexdigest()}
        await self._call(
            f"put {role}", "PUT", f"artifacts/{role}", content=content, headers=headers
        )
        self._said_at = time.monotonic()

    async def _call(self, kind: str, method: str, path: str, **given: object) -> httpx2.Response:
        given["headers"] = {
            **given.get("headers", {}),  # pyright: ignore[reportGeneralTypeIssues]
            "Authorization": f"Bearer {self._offer.token}",
        }
        answer = await self._farm.call(
            self._http, kind, method, f"/v1/attempts/{self._offer.attempt}/{path}", **given
        )
        if answer.status_code in (401, 409) or (answer.is_client_error and kind != "resume"):
            raise _LeaseLost(f"{kind}: {answer.status_code} {answer.text[:200]}")
        return answer


@functools.lru_cache(maxsize=512)
def _files(model: str) -> dict[str, bytes]:
    """A checkpoint and a report of a model: real ones, made once per shape."""
    spec = TypeAdapter[ModelSpec](ModelSpec).validate_json(model)
    return {
        "checkpoint": save_bytes(spec.build(seed=1), spec),
        "report": parameter_report(spec).model_dump_json().encode(),
    }
