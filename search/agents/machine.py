"""A worker machine: it joins, asks what to run, runs it here, and says how it ended.

Three threads share what runs: one asks, one tells how attempts ended, one sends their logs. Each
tries again for ever, with pauses that grow, when the service is away: attempts go on meanwhile for
as long as their leases hold, which is their own affair (`search.agents.lease_keeper`).
"""

import logging
import random
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Final, final

from search.agents.executors import AttemptTicket, Exit, LocalExecutor
from search.agents.log_sender import LogSender
from search.agents.machine_client import MachineLink, NoAnswer
from search.agents.machine_protocol import AttemptExit, Exits, Join, Joined, Offer, Orders, Poll
from search.errors import ExecutorError, MachineRefused
from search.measuring.measurement_lock import lock_folder
from storage.endings import AttemptCause

_log = logging.getLogger(__name__)

_LEASE_OVER: Final = 3
"""The exit code of an attempt whose lease was over, see `search.agents.worker.REFUSED`."""

_LONGEST_WAIT_SECONDS = 10.0
"""How long the service may wait for orders before it answers, and take for all else."""

_NOTICE_SECONDS = 0.5

_FIRST_PAUSE_SECONDS = 0.1
_LONGEST_PAUSE_SECONDS = 10.0

_STORE_SECONDS = 30.0
"""How long attempts may take to store where they are when the machine stops."""

_GOODBYE_SECONDS = 5.0
"""How long the service may take to hear that the machine stops, and how its attempts ended."""

STOPPED = "its machine was stopped"
"""How an attempt ended that made room for its machine's end; it did nothing wrong."""


@dataclass(frozen=True, kw_only=True)
class MachineFolders:
    """Where this machine keeps what does not go over HTTP."""

    data: Path | None
    """The user's own data files."""
    cache: Path
    """Downloaded and decoded data."""
    locks: Path
    """Lock files of the measurement locks."""


@final
class WorkerMachine:
    """One process that joined as one machine.

    Args:
        link: the line to the service at `url`.
        join: who this machine is, with its slots.
        executor: runs attempts here, on the same slots.
    """

    def __init__(
        self,
        link: MachineLink,
        join: Join,
        executor: LocalExecutor,
        *,
        url: str,
        folders: MachineFolders,
    ) -> None:
        self._link = link
        self._join = join
        self._executor = executor
        self._url = url
        self._folders = folders
        self._slots = {slot.device: slot for slot in reversed(executor.capacity())}
        self._logs = LogSender(url)
        self._lock = threading.Condition()
        self._running: dict[str, Offer] = {}
        """What was started and whose end was not acknowledged."""
        self._ending: dict[str, float] = {}
        self._ended: list[AttemptExit] = []
        self._draining = False
        self._over = threading.Event()
        self._refusal: MachineRefused | None = None
        self._wait_seconds = _LONGEST_WAIT_SECONDS

    def run(self, stop: threading.Event, *, joined: Callable[[str], None]) -> None:
        """Work until `stop` is set; `joined` is told the machine's name each time that it joins.

        Then what runs stores where it is and ends, for another machine to go on from there. The
        caller closes the executor.

        Raises:
            MachineRefused: the service does not take this machine (any more).
        """

        def ask() -> None:
            try:
                self._ask(joined)
            except MachineRefused as refusal:
                self._refusal = refusal
            finally:
                stop.set()

        threads = [
            threading.Thread(target=work, name=name, daemon=True)
            for name, work in (("ask", ask), ("watch", self._watch), ("tell", self._tell))
        ]
        for thread in threads:
            thread.start()
        stop.wait()
        self._wind_down()
        self._over.set()
        with self._lock:
            self._lock.notify_all()
        self._logs.close(timeout_seconds=_GOODBYE_SECONDS)
        if self._refusal is not None:
            raise self._refusal

    def _ask(self, joined: Callable[[str], None]) -> None:
        """Join, and poll for as long as it lasts."""
        pauses = _Pauses()
        number, is_joined = 0, False
        while not self._over.is_set():
            try:
                if not is_joined:
                    self._take(self._link.join(self._join), joined)
                    is_joined = True
                number += 1
                orders = self._link.poll(self._poll(number))
            except NoAnswer as trouble:
                if self._over.is_set():
                    return
                _log.warning("the server does not answer", extra={"reason": trouble})
                self._over.wait(pauses.next())
                continue
            except MachineRefused as refusal:
                if self._draining:
                    return
                if not is_joined:
                    raise
                _log.warning("joining again", extra={"reason": refusal})
                is_joined = False
                self._over.wait(pauses.next())
                continue
            pauses.reset()
            self._obey(orders)

    def _take(self, taken: Joined, joined: Callable[[str], None]) -> None:
        # Nobody counts on a machine that is silent for a lease time.
        third = taken.lease_seconds / 3
        self._wait_seconds = min(_LONGEST_WAIT_SECONDS, third)
        self._link.timeout = min(_LONGEST_WAIT_SECONDS, max(1.0, third))
        joined(taken.name)

    def _poll(self, number: int) -> Poll:
        with self._lock:
            return Poll(
                session=self._join.session,
                number=number,
                running=tuple(self._running),
                ending=dict(self._ending),
                wait_seconds=self._wait_seconds,
            )

    def _obey(self, orders: Orders) -> None:
        for end in orders.end:
            with self._lock:
                self._ending[end.attempt] = end.grace_seconds
            self._executor.cancel(end.attempt, end.grace_seconds)
        for offer in orders.start:
            with self._lock:
                if self._draining or offer.attempt in self._running:
                    continue
                self._running[offer.attempt] = offer
            self._start(offer)

    def _start(self, offer: Offer) -> None:
        ticket = AttemptTicket(
            url=self._url,
            attempt_id=offer.attempt,
            token=offer.token,
            lease_seconds=offer.lease_seconds,
            device=offer.device,
            data=self._folders.data,
            cache=self._folders.cache,
            lock_folder=lock_folder(self._folders.locks, offer.device),
            threads=offer.threads,
            memory=offer.memory,
            log_format=offer.log_format,
            log_fields=offer.log_fields,
        )
        slot = self._slots.get(offer.device)
        try:
            if slot is None:
                raise ExecutorError(f"device {offer.device!r} is not on this machine")
            self._executor.start(ticket, slot)
        except ExecutorError as error:
            _log.error("an attempt did not start", extra={"reason": error})
            self._note(AttemptExit(attempt=offer.attempt, detail=f"not started: {error}"[:2000]))
        else:
            path = self._executor.log_path(offer.attempt)
            self._logs.watch(offer.attempt, token=offer.token, path=path)

    def _watch(self) -> None:
        """Notice what ended here."""
        while not self._over.is_set():
            for ended in self._executor.poll(_NOTICE_SECONDS):
                self._logs.ended(ended.attempt_id)
                cause, detail = self._how(ended)
                self._note(
                    AttemptExit(
                        attempt=ended.attempt_id,
                        returncode=ended.returncode,
                        signal=ended.signal,
                        detail=detail,
                        cause=cause,
                    )
                )

    def _how(self, ended: Exit) -> tuple[AttemptCause, str]:
        """Tell what an attempt did itself from what befell it, see `search.running.losses`."""
        if ended.returncode == _LEASE_OVER:
            return AttemptCause.LOST, "its lease was over"
        if self._draining:
            return AttemptCause.LOST, STOPPED
        return ended.cause, ended.detail[:2000]

    def _note(self, ended: AttemptExit) -> None:
        with self._lock:
            self._ended.append(ended)
            self._lock.notify_all()

    def _tell(self) -> None:
        """Tell the service what ended, until it says that it knows."""
        pauses = _Pauses()
        while True:
            with self._lock:
                self._lock.wait_for(lambda: self._ended or self._over.is_set())
                if self._over.is_set():
                    return
                exits = tuple(self._ended)
            try:
                self._link.exits(Exits(session=self._join.session, exits=exits))
            except (NoAnswer, MachineRefused) as trouble:
                # Who is refused has to join again, which the other thread does.
                _log.warning("an end could not be told", extra={"reason": trouble})
                self._over.wait(pauses.next())
                continue
            pauses.reset()
            with self._lock:
                del self._ended[: len(exits)]
                for ended in exits:
                    self._running.pop(ended.attempt, None)
                    self._ending.pop(ended.attempt, None)
                self._lock.notify_all()

    def _wind_down(self) -> None:
        """Take nothing more, have what runs store where it is, and say that it ended."""
        with self._lock:
            self._draining = True
            running = tuple(self._running)
        for attempt_id in running:
            self._executor.cancel(attempt_id, _STORE_SECONDS)
        if self._refusal is None:
            try:
                self._link.leave(self._join.session)
            except (NoAnswer, MachineRefused) as trouble:
                _log.warning("the server was not told of the end", extra={"reason": trouble})
        with self._lock:
            self._lock.wait_for(self._has_nothing_at_work, _STORE_SECONDS + _GOODBYE_SECONDS)
            if self._refusal is None:
                self._lock.wait_for(lambda: not self._running, _GOODBYE_SECONDS)

    def _has_nothing_at_work(self) -> bool:
        return self._running.keys() <= {ended.attempt for ended in self._ended}


@final
class _Pauses:
    """Pauses that double, each with a random part, so that machines do not come back together."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self._seconds = _FIRST_PAUSE_SECONDS

    def next(self) -> float:
        pause = self._seconds * random.uniform(0.5, 1.0)
        self._seconds = min(2 * self._seconds, _LONGEST_PAUSE_SECONDS)
        return pause
