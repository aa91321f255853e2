"""Machines without processors: their agents join, poll and sync, and train nothing.

One process plays all of them. Everything that the service sees is real: machines with their slots,
lease tokens, jobs, words that go by the agents' own outbox, beats, epochs with plausible curves,
states to resume from as often as the job wants them, logs, checkpoints, samples and reports, last
words, exits. A slot counts as busy while its attempt trains, and at no other time.
"""

import asyncio
import contextlib
import functools
import hashlib
import json
import random
import secrets
import struct
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import Any, Literal

import httpx2
import torch
from pydantic import TypeAdapter

from models.checkpoint import save_bytes
from models.model import ModelSpec
from models.report import parameter_report
from search.agents.log_tail import EVERY_SECONDS
from search.agents.outbox import PACE_SECONDS, Outbox, Word
from search.agents.protocol import (
    SYNC_TYPE,
    Join,
    Joined,
    MachineSlot,
    Offer,
    Orders,
    Poll,
    Synced,
)
from search.documents.export_kinds import SAMPLES
from search.tasks import DataSources
from search.tasks.raw_samples import RawSamples
from search.training.jobs import Completion, EpochReport, Job, MeasureJob, PrepareJob, TrainJob
from tests.search.honest_words import measurement, resume_file

_JOB: TypeAdapter[Job] = TypeAdapter(Job)
_PATIENCE_SECONDS = 240.0
_SAMPLES = 64
_RESUME_BYTES = 40_000
"""What is new in each state to resume from, beside the weights and moments of a small network."""


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
    """Slots whose attempts train just now."""
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
        self.trials = trials
        self.sources = sources
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
        self, http: httpx2.AsyncClient, kind: str, method: str, path: str, **given: Any
    ) -> httpx2.Response:
        """Ask until it is answered, and note how long each answer took."""
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while True:
            begun = time.monotonic()
            try:
                answer = await http.request(method, path, **given)
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


class _Machine:
    """One machine that joined."""

    def __init__(self, farm: Farm, http: httpx2.AsyncClient, index: int, slots: int) -> None:
        self._farm = farm
        self._http = http
        self._id, self._session = secrets.token_hex(16), secrets.token_hex(16)
        self._index = index
        self._slots = slots
        self._running: dict[str, asyncio.Task[None]] = {}
        self._places: dict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._ending: dict[str, float] = {}
        self._urgent = asyncio.Event()
        self._outbox = Outbox(self._session, lease_seconds=farm.trials.lease_seconds)

    async def run(self) -> None:
        """Join, ask for orders, and say what comes of them."""
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
        answer = await self._post("join", "", join.model_dump_json())
        Joined.model_validate_json(answer.content)
        telling = asyncio.create_task(self._tell())
        try:
            await self._ask(telling)
        finally:
            telling.cancel()

    def silence(self) -> None:
        """Say nothing more."""
        for task in self._running.values():
            task.cancel()

    def say(self, attempt: str, item: dict[str, Any], *, last: bool = False, **word: Any) -> None:
        """Have a word said within a second, or at once if it is urgent."""
        self._outbox.add(Word(attempt, item, **word), last=last)
        if word.get("urgent"):
            self._urgent.set()

    async def resume(self, offer: Offer) -> None:
        """Ask for what an earlier attempt stored, as a slot does."""
        path = f"/v1/agents/{self._id}/attempts/{offer.attempt}/artifacts/resume"
        headers = {"Lease-Token": offer.token}
        await self._farm.call(self._http, "resume", "GET", path, headers=headers)

    def beat(self, attempt: str, held_seconds: float) -> None:
        """Note that an attempt is alive."""
        self._outbox.beat(attempt, stood_still_seconds=0.0, held_seconds=held_seconds)

    async def _ask(self, telling: "asyncio.Task[None]") -> None:
        number = 0
        while not telling.done():
            number += 1
            poll = Poll(
                session=self._session,
                number=number,
                running=tuple(self._running),
                ending={name: self._ending[name] for name in self._ending if name in self._running},
            )
            answer = await self._post("poll", f"/{self._id}/poll", poll.model_dump_json())
            orders = Orders.model_validate_json(answer.content)
            for offer in orders.start:
                if offer.attempt not in self._running:
                    self._outbox.open(offer.attempt, offer.token)
                    task = asyncio.create_task(self._attempt(offer))
                    self._running[offer.attempt] = task
            for end in orders.end:
                self._ending[end.attempt] = end.grace_seconds
                if end.attempt in self._running:
                    self._running[end.attempt].cancel()
        telling.result()

    async def _tell(self) -> None:
        while True:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._urgent.wait(), PACE_SECONDS)
            self._urgent.clear()
            batch = self._outbox.batch()
            if batch is None:
                continue
            answer = await self._post("sync", f"/{self._id}/sync", batch.body, kind=SYNC_TYPE)
            synced = Synced.model_validate_json(answer.content)
            refused = {one.item: one for one in synced.refused if one.item is not None}
            for word in self._outbox.taken(batch, refused):
                if word.item["kind"] == "exit":
                    self._running.pop(word.attempt, None)
            for refusal in synced.refused:
                if refusal.why == "full":
                    continue
                self._farm.seen.leases_lost += 1
                self._farm.seen.refused.append(f"{refusal.why}: {refusal.detail}")
                self._outbox.drop(refusal.attempt)
                if refusal.attempt in self._running:
                    self._running[refusal.attempt].cancel()

    async def _attempt(self, offer: Offer) -> None:
        """One attempt from its job to its exit."""
        code, attempt = 0, _Attempt(self, offer, self._farm)
        offered = time.monotonic()
        try:
            async with self._places[offer.place]:
                attempt = _Attempt(self, offer, self._farm)
                if offer.ahead:
                    waited = time.monotonic() - offered
                    self.say(offer.attempt, {"kind": "began", "waited_seconds": waited})
                await attempt.run()
            self._farm.seen.ended += 1
        except asyncio.CancelledError:
            code = 143
        attempt.say_log()
        ended = {"kind": "exit", "returncode": code, "detail": f"exit code {code}"}
        self.say(offer.attempt, ended, last=True, urgent=True)

    async def _post(
        self, call: str, path: str, body: str | bytes, *, kind: str = "application/json"
    ) -> httpx2.Response:
        answer = await self._farm.call(
            self._http,
            call,
            "POST",
            f"/v1/agents{path}",
            content=body,
            headers={"Content-Type": kind},
        )
        answer.raise_for_status()
        return answer


class _Attempt:
    """One lease."""

    def __init__(self, machine: _Machine, offer: Offer, farm: Farm) -> None:
        self._machine, self._offer, self._farm = machine, offer, farm
        self._begun = self._said_log_at = self._stored_at = time.monotonic()
        self._log = b""

    async def run(self) -> None:
        """Do the job."""
        job = _JOB.validate_python(self._offer.job)
        if isinstance(job, TrainJob):
            await self._train(job)
        elif isinstance(job, MeasureJob):
            self._measure(job)
        elif isinstance(job, PrepareJob):
            await self._prepare(job)

    async def _prepare(self, job: PrepareJob) -> None:
        splits = await asyncio.to_thread(job.task.load, self._farm.sources)
        metric = job.task.metric
        found = {**splits.sizes, "metric": metric.name, "baseline": metric.baseline}
        self._end(Completion(outcome="complete", prepared=found))

    def _measure(self, job: MeasureJob) -> None:
        for shape in job.shapes:
            told = measurement(job, shape, speed=1e9 / shape.model.parameter_count(), ratio=0.5)
            self._say({"kind": "measurement"}, report=told.model_dump_json())
        self._end(Completion(outcome="complete"))

    async def _train(self, job: TrainJob) -> None:
        # Training starts anew whatever there is.
        await self._machine.resume(self._offer)
        outcome: Literal["complete", "stopped"] = "complete"
        lift = random.uniform(-0.02, 0.02)
        state = _State(job)
        self._farm.seen.running += 1
        try:
            for epoch in range(1, job.epochs + 1):
                seconds = self._farm.trials.epoch_seconds * random.uniform(0.9, 1.1)
                await self._while_training(seconds, state, every=job.checkpoint_seconds)
                told = _report(epoch, lift=lift)
                self._log += f"INFO epoch {epoch}: validation {told.validation:.6g}\n".encode()
                self._say({"kind": "epoch"}, report=told.model_dump_json())
        finally:
            self._farm.seen.running -= 1
        for role, content in _files(job.trial.model.model_dump_json()).items():
            self._store(role, content)
        last = _report(job.epochs, lift=lift)
        self._end(
            Completion(
                outcome=outcome,
                quality=last.validation,
                test_quality=last.validation,
                best_epoch=job.epochs,
                epochs_trained=job.epochs,
                held_seconds=time.monotonic() - self._begun,
            )
        )

    async def _while_training(self, seconds: float, state: "_State", *, every: float) -> None:
        """Say that the process is alive, ten times in a lease, and store where training is."""
        until = time.monotonic() + seconds
        while (left := until - (now := time.monotonic())) > 0:
            self._machine.beat(self._offer.attempt, now - self._begun)
            if now - self._stored_at >= every:
                self._stored_at = now
                self._store("resume", state.bytes())
            if now - self._said_log_at >= EVERY_SECONDS:
                self.say_log()
            await asyncio.sleep(min(left, max(every, 0.1), self._farm.trials.lease_seconds / 10))

    def say_log(self) -> None:
        """Send what was logged."""
        self._said_log_at = time.monotonic()
        if self._log:
            item = {"kind": "log", "size": len(self._log), "cut": 0}
            self._say(item, content=self._log, replaces="log")

    def _store(self, role: str, content: bytes) -> None:
        digest = hashlib.sha256(content).hexdigest()
        item = {"kind": "artifact", "role": role, "sha256": digest, "size": len(content)}
        self._say(item, content=content, replaces=f"artifact {role}")

    def _end(self, completion: Completion) -> None:
        # As with a real slot it goes with the exit, which is urgent.
        self._say({"kind": "end"}, report=completion.model_dump_json())

    def _say(self, item: dict[str, Any], **word: Any) -> None:
        self._machine.say(self._offer.attempt, item, **word)


class _State:
    """States to resume from of one trial, which differ as much as real ones."""

    def __init__(self, job: TrainJob) -> None:
        self._whole = resume_file(job, kept_bytes=_RESUME_BYTES)
        (length,) = struct.unpack("<Q", self._whole[:8])
        header = json.loads(self._whole[8 : 8 + length])
        self._from = 8 + length + header["rng:order"]["data_offsets"][0]

    def bytes(self) -> bytes:
        """A new one."""
        before, after = self._whole[: self._from], self._whole[self._from + _RESUME_BYTES :]
        return b"".join((before, secrets.token_bytes(_RESUME_BYTES), after))


def _report(epoch: int, *, lift: float) -> EpochReport:
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


@functools.lru_cache(maxsize=512)
def _files(model: str) -> dict[str, bytes]:
    """A checkpoint and a report of a model: real ones, made once per shape."""
    spec = TypeAdapter[ModelSpec](ModelSpec).validate_json(model)
    samples = RawSamples(torch.rand(_SAMPLES, 8, 8), torch.zeros(_SAMPLES, dtype=torch.int64))
    return {
        SAMPLES: samples.to_bytes(),
        "checkpoint": save_bytes(spec.build(seed=1), spec),
        "report": parameter_report(spec).model_dump_json().encode(),
    }
