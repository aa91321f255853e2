"""Trials that are trained together in a slot's process, see Note [Stacks] in `search/README.md`.

A trial that is trained alone is a stack of one.
"""

import logging
import queue
import random
import signal
import threading
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import dataclass
from types import FrameType
from typing import TYPE_CHECKING, Any, Final, final

import numpy as np
import torch
from pydantic import TypeAdapter, ValidationError

from models.errors import ModelError
from search.agents.executor import AttemptTicket
from search.agents.slots.attempt_logs import AttemptLog
from search.agents.slots.shares import Shares
from search.agents.slots.slot_frames import Frame
from search.agents.slots.slot_line import SlotLine
from search.agents.slots.stack_member import Member
from search.agents.slots.wear import Wear
from search.agents.warm_data import TaskData, WarmData
from search.agents.worker import DONE, FAILED, TERMINATED
from search.measuring.measurement_lock import MeasurementLock
from search.training.jobs import Job, TrainJob
from search.training.stacks import (
    Entry,
    KnownWidths,
    Left,
    StackHooks,
    TrainingResult,
    stack_key,
    train_stack,
)

_log = logging.getLogger(__name__)

_JOB: Final[TypeAdapter[Job]] = TypeAdapter(Job)
_TICKET: Final[TypeAdapter[AttemptTicket]] = TypeAdapter(AttemptTicket)


@dataclass(frozen=True)
class Told:
    """A frame `job`, read."""

    ticket: AttemptTicket
    job: Job
    log: str

    @classmethod
    def of(cls, frame: Frame) -> "Told":
        """Read a frame.

        Raises:
            ValidationError: it says what no agent says.
        """
        ticket, job = _TICKET.validate_python(frame["ticket"]), _JOB.validate_python(frame["job"])
        return cls(ticket, job, frame["log"])


_MOMENT_SECONDS: Final = 0.05
"""How long those that train wait for one that came: it fetches its files in a tenth of that."""

_Party = tuple[str, str, str]


def _party(told: Told) -> _Party | None:
    """What those have alike that can be computed together; null: it is computed alone."""
    if not told.ticket.together or not isinstance(told.job, TrainJob):
        return None
    try:
        return told.ticket.tenant, told.ticket.device, stack_key(told.job)
    except (ModelError, ValueError):
        # A model that cannot be is nobody's company; its own attempt says what is wrong.
        return None


@final
class Stack:
    """The trials that are trained now, from the first that begins to the last that ends.

    Args:
        line: the slot's line.
        lock: the device's measurement lock.
        data: the task's data, kept from one stack to the next.
        widths: how many trials were best computed in one call, likewise.
        wear: what the process is good for.
        as_begun: puts the process's random numbers where they stood before any job.
    """

    def __init__(
        self,
        line: SlotLine,
        lock: MeasurementLock,
        *,
        data: WarmData,
        widths: KnownWidths,
        wear: Wear,
        as_begun: Callable[[], None],
    ) -> None:
        self._line, self._lock, self._data, self._wear = line, lock, data, wear
        self._widths = widths
        self._as_begun = as_begun
        self._held = Shares()
        self._stood_still = Shares(lambda: lock.stood_still_seconds)
        self._members: dict[Member, None] = {}
        """All that have begun and not ended, in order."""
        self._fetching: set[Member] = set()
        """Those of them that have not all that they begin with."""
        self._ready = queue.SimpleQueue[Member | None]()
        """Those that have it, and null where SIGTERM came."""
        self._is_terminating = False
        self._loaded: TaskData | None = None
        self._party: _Party | None = None
        self._passed_over = ""
        self._code: int | None = None

    def train(self, told: Told, job: TrainJob) -> int | None:
        """Train a trial, and all that join it; returns the process's exit code, null: it lives.

        Raises:
            WorkerRefused: nobody wants to hear a word.
        """
        self._party = _party(told)
        try:
            return self._to_end(self._begin(told, job), job)
        finally:
            for member in self._members:
                member.close()

    def _to_end(self, first: Member, job: TrainJob) -> int | None:
        # Nobody waits beside the first, and SIGTERM ends it at once, since it has nothing to store.
        first.fetch()
        self._ready.put(first)
        try:
            self._loaded = self._data.of(job.task, first.sources)
        except Exception as error:
            self._end(first, error)
            return self._code
        with _on_sigterm(self._terminate):
            while self._members:
                self._train(job, first.device)
        return self._code

    def _train(self, job: TrainJob, device: str) -> None:
        assert self._loaded is not None
        try:
            train_stack(
                self._loaded.splits,
                task=job.task,
                hooks=self,
                device=device,
                known=self._widths,
            )
        except Exception as error:
            if len(self._members) != 1 or self._fetching:
                # Whose doing it was is not known: all go on from their files, in other processes.
                raise
            (member,) = self._members
            self._end(member, error)
            return
        if self._members.keys() != self._fetching:
            raise RuntimeError(f"nothing was said of {len(self._members)} trials of a stack")

    # What training asks, see `StackHooks`.

    @property
    def stood_still_seconds(self) -> float:
        """How long the slot has stood still for measurers, since this stack began."""
        return self._lock.stood_still_seconds

    @contextmanager
    def batch(self) -> Generator[None]:
        """Compute beside others that compute, and not while somebody measures."""
        # What newcomers need is there, then, when they may join.
        self._begin_newcomers()
        with self._lock.shared():
            yield

    def newcomers(self) -> Sequence[Entry]:
        """Those that came meanwhile and have all that they begin with.

        Where nobody else is there, the first that has it is waited for, and who came just now is
        waited for a moment, so that those who come together begin together.
        """
        self._begin_newcomers()
        entries: list[Entry] = []
        while self._fetching:
            nobody = not entries and self._members.keys() == self._fetching
            latest = max(member.began_at for member in self._fetching) + _MOMENT_SECONDS
            seconds = None if nobody else max(0.0, latest - time.monotonic())
            found = self._take_ready(seconds)
            if not found and not nobody:
                break
            for member in found:
                entry = self._entry(member)
                entries += [] if entry is None else [entry]
        return entries

    def ended(self, entry: Entry, result: TrainingResult | Exception) -> None:
        """Say what came of one of them."""
        member = entry.hooks
        assert isinstance(member, Member)
        self._end(member, result)

    # How members come and go.

    def _begin_newcomers(self) -> None:
        while self._line.has_jobs and self._lives:
            frame = self._line.take_if(self._joins)
            if frame is None:
                return
            self._begin_beside(frame)

    def _joins(self, frame: Frame) -> bool:
        """Whether the trial of a frame can be computed with those that are there."""
        if frame["attempt"] == self._passed_over:
            return False
        try:
            joins = _party(Told.of(frame)) == self._party is not None
        except ValidationError:
            # It ends a process of its own, and not this one with all that are at work.
            joins = False
        self._passed_over = "" if joins else frame["attempt"]
        return joins

    def _begin_beside(self, frame: Frame) -> None:
        """Begin with another trial; what it needs is fetched while the others go on."""
        told = Told.of(frame)
        assert isinstance(told.job, TrainJob)
        member = self._begin(told, told.job)

        def fetch() -> None:
            member.fetch()
            self._ready.put(member)

        threading.Thread(target=fetch, name="fetch", daemon=True).start()

    def _begin(self, told: Told, job: TrainJob) -> Member:
        line = self._line.begin(
            told.ticket.attempt_id, held=self._held, stood_still=self._stood_still
        )
        self._wear.begin()
        member = Member(told.ticket, job, line, AttemptLog(told.ticket, told.log))
        self._members[member] = None
        self._fetching.add(member)
        return member

    def _take_ready(self, seconds: float | None) -> list[Member]:
        """Those that have got what they begin with; all that have none, where SIGTERM came.

        One is waited for so long; null: until there is one.
        """
        found: set[Member] = set()
        with suppress(queue.Empty):
            one = self._ready.get(timeout=seconds)
            while True:
                found |= self._fetching if one is None else {one}
                one = self._ready.get_nowait()
        # One that SIGTERM has ended may come to its end of fetching later.
        found &= self._fetching
        self._fetching -= found
        return [member for member in self._members if member in found]

    def _entry(self, member: Member) -> Entry | None:
        """What training is given; null where it has ended before."""
        assert self._loaded is not None
        # For the others the draws of one that joins do not happen; for that one, theirs do not.
        others = nullcontext() if len(self._members) == 1 else _random_numbers_kept()
        with others:
            self._as_begun()
            try:
                return member.entry(self._loaded.splits, batch=self.batch)
            except Exception as error:
                self._end(member, error)
                return None

    def _end(self, member: Member, result: TrainingResult | Exception) -> None:
        """Say a member's last word, or that it has gone without one."""
        is_last = self._members.keys() == {member}
        try:
            completion = member.outcome(result, self._loaded)
        except Left:
            self._gone(member, is_last=is_last)
            return
        self._wear.end(completion, was_last=is_last)
        code = FAILED if completion.outcome == "failed" else DONE
        lives = self._lives
        frees = lives or not is_last
        self._forget(member)
        member.line.say_end(completion, code=code, frees=frees, lives=lives)
        self._code = None if frees else code

    def _gone(self, member: Member, *, is_last: bool) -> None:
        by_signal = self._is_terminating
        what = "stopped by SIGTERM" if by_signal else "told to leave"
        self._forget(member, why=f"{what}; another attempt can go on from here")
        frees = self._lives or not is_last
        if frees:
            member.line.say_left(code=TERMINATED, lives=self._lives)
        self._code = None if frees else TERMINATED

    @property
    def _lives(self) -> bool:
        """Whether the process takes further jobs."""
        return self._wear.takes_more and not self._is_terminating

    def _forget(self, member: Member, *, why: str = "") -> None:
        del self._members[member]
        self._fetching.discard(member)
        self._line.over(member.line)
        member.line.give_up_its_shares()
        member.close(why=why)

    def _terminate(self) -> None:
        """Have all store where they are, and end; called within the handler of SIGTERM."""
        self._is_terminating = True
        for member in tuple(self._members):
            member.line.leave()
        self._ready.put(None)


@contextmanager
def _on_sigterm(act: Callable[[], None]) -> Generator[None]:
    """Have SIGTERM call `act` meanwhile, in place of ending the process on the spot."""

    def handle(_number: int, _frame: FrameType | None) -> None:
        act()

    before = signal.signal(signal.SIGTERM, handle)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def _random_numbers_kept() -> Generator[None]:
    """Put the generators of this process back where they stood before."""
    on_gpus = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else ()
    in_torch, in_python = torch.get_rng_state(), random.getstate()
    in_numpy: Any = np.random.get_state()
    try:
        yield
    finally:
        torch.set_rng_state(in_torch)
        random.setstate(in_python)
        np.random.set_state(in_numpy)
        if on_gpus:
            torch.cuda.set_rng_state_all(on_gpus)


if TYPE_CHECKING:
    _is_hooks: type[StackHooks] = Stack
