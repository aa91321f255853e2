"""Attempts on machines that joined over HTTP: booked, offered and ended by rows of the database.

The executor speaks to no machine. It books a place, writes down what to start there and what to
end, and reads how attempts ended; the API tells the machines, see `search.running.agent_handler`.
So several coordinators share the machines, and any API process serves them.
"""

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Hashable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, final

from pydantic import TypeAdapter
from sqlalchemy.orm import Session

from search.agents.executor import (
    PLACE_SIGN,
    AttemptTicket,
    Executor,
    Exit,
    Slot,
    check_device,
    log_file,
    slot_of,
)
from search.agents.renewal_watch import RenewalWatch
from search.errors import ExecutorError
from search.logs import LogFormat
from storage.endings import AttemptCause
from storage.engine import Database
from storage.errors import DatabaseUnavailable
from storage.fleet.bookings import BookingRecord, Bookings, TakenPlace
from storage.fleet.machines import MachineRecord, Machines, PlaceRecord
from storage.records import LOCAL, BookingState

_log = logging.getLogger(__name__)

GO_ON_SECONDS = 300.0
"""How long attempts are given whose machines are not heard, while no other one is."""


@dataclass(frozen=True)
class OfferedAttempt:
    """What a machine needs of a ticket beside a token; its folders are its own."""

    lease_seconds: float
    device: str
    threads: int
    log_format: LogFormat
    log_fields: Mapping[str, str | int] = field(default_factory=dict[str, "str | int"])
    memory: int | None = None
    tenant: str = LOCAL
    together: bool = False


OFFERS: TypeAdapter[OfferedAttempt] = TypeAdapter(OfferedAttempt)


@final
class RemoteExecutor:
    """The slots of all machines that joined, for one of the coordinators that share them.

    Args:
        owner: the coordinator's name; what one of the same name left behind is forgotten.
        lease_seconds: how long a machine may be silent before its slots are not counted.
        logs: folder for the logs of machines that share it.
        clock: gives seconds and never goes back.
    """

    def __init__(
        self,
        database: Database,
        *,
        owner: str,
        lease_seconds: float,
        logs: Path,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._database = database
        self._owner = owner
        self._lease_seconds = lease_seconds
        self._logs = logs
        self._watch = RenewalWatch(lease_seconds, clock=clock)
        self._clock = clock
        self._changes = database.changes()
        self._seen: Hashable | None = None
        self._to_tell: set[str] = set()
        self._to_cancel: dict[str, float] = {}
        self._heard: set[str] = set()
        """Attempts whose ends are reported; their bookings are to go."""
        self._heard_at = clock()
        self._heard_since: float | None = None
        self._last_heard: Mapping[str, datetime] = {}
        self._doubtful: dict[str, datetime] | None = None
        self._machines: dict[str, str] = {}
        self._slots: tuple[Slot, ...] = ()
        self._lock = threading.Lock()
        self._running: set[str] = set()
        self._exits: list[Exit] = []
        self._closed = threading.Event()

    def capacity(self) -> Sequence[Slot]:
        """Slots of the machines that are heard of, without those that other coordinators have.

        While the database does not answer, they are what they were.
        """
        with contextlib.suppress(DatabaseUnavailable):
            if self._doubtful is None:
                with self._database.write() as session:
                    Bookings(session).forget(owner=self._owner)
            with self._database.read() as session:
                machines = Machines(session).list()
                bookings = Bookings(session).places() if machines or self._running else []
            alive = self._alive(machines)
            self._machines = {machine.name: machine.id for machine in alive}
            self._slots = tuple(self._free_or_ours(alive, bookings))
            self._miss(bookings)
        return self._slots

    def reserve(self, attempt_id: str, slot: Slot) -> bool:  # noqa: ARG002
        """Whether the slot's machine is here; `book` takes the place itself."""
        return slot.machine in self._machines and not self._closed.is_set()

    def book(
        self, session: Session, ticket: AttemptTicket, slot: Slot, *, ahead: bool = False
    ) -> bool:
        """Offer the attempt to the slot's machine; False when another attempt has the place."""
        machine_id = self._machines.get(slot.machine)
        if machine_id is None:
            return False
        offer = OfferedAttempt(
            lease_seconds=ticket.lease_seconds,
            device=ticket.device,
            threads=ticket.threads,
            log_format=ticket.log_format,
            log_fields=ticket.log_fields,
            memory=ticket.memory,
            tenant=ticket.tenant,
            together=ticket.together,
        )
        return Bookings(session).offer(
            ticket.attempt_id,
            machine_id=machine_id,
            place=_place(slot),
            owner=self._owner,
            offer=OFFERS.dump_python(offer, mode="json"),
            at=datetime.now(UTC),
            ahead=ahead,
        )

    def start(self, ticket: AttemptTicket, slot: Slot) -> None:
        """Have the machine told, with all others at the next `poll`, of what is booked there.

        Raises:
            ExecutorError: the attempt runs already, or the device is another.
        """
        if self._closed.is_set():
            raise ExecutorError("the executor is closed and starts nothing any more")
        check_device(ticket, slot, self._slots)
        with self._lock:
            if ticket.attempt_id in self._running:
                raise ExecutorError(f"attempt {ticket.attempt_id} runs already")
            self._running.add(ticket.attempt_id)
            self._to_tell.add(self._machines.get(slot.machine, ""))

    def adopt(self, attempt_id: str) -> int | None:
        """Take over an attempt that its machine still has; gives its number on its slot."""
        with self._database.write() as session:
            place = Bookings(session).adopt(attempt_id, owner=self._owner)
        if place is None:
            return None
        with self._lock:
            self._running.add(attempt_id)
        return int(place.partition(PLACE_SIGN)[2] or 0)

    def keeps(self, attempt_id: str) -> bool:
        """Machines go on with what they have, for the next coordinator."""
        return attempt_id in self._running

    def unheard(self) -> Set[str]:
        """All that runs, unless machines were heard of for as long as a lease holds.

        Where none is heard, it is we who are away: an API that is restarted, a network that is cut.
        What no other machine could take over anyway is given time to come back.
        """
        since, now = self._heard_since, self._clock()
        if since is not None and now - since >= self._lease_seconds:
            return frozenset[str]()
        if now - self._heard_at > GO_ON_SECONDS + self._lease_seconds:
            return frozenset[str]()
        with self._lock:
            return frozenset(self._running)

    def cancel(self, attempt_id: str, grace_seconds: float) -> None:
        """Have the machine told at the next `poll` to end it; harmless when it has ended."""
        # Written with the next `poll`: the caller may be in the middle of a transaction.
        with self._lock:
            sooner = min(grace_seconds, self._to_cancel.get(attempt_id, grace_seconds))
            self._to_cancel[attempt_id] = sooner

    def poll(self, timeout_seconds: float) -> Sequence[Exit]:
        """Return what ended since the last call; waits up to the timeout for a first one."""
        self._tell_machines()
        deadline = time.monotonic() + timeout_seconds
        while True:
            self._look()
            told = self._told()
            left = deadline - time.monotonic()
            if told or left <= 0 or (self._closed.is_set() and not self._running):
                return told
            self._changes.wait(left)

    def log_path(self, attempt_id: str) -> Path:
        """Name the file that would hold the log, if its machine shared our folder: `log_file`."""
        return log_file(self._logs, attempt_id)

    def close(self) -> None:
        """Take nothing more; what runs goes on, for the next coordinator."""
        self._closed.set()
        with contextlib.suppress(DatabaseUnavailable):
            self._tell_machines()
        self._changes.close()

    def _tell_machines(self) -> None:
        """Have the polls of machines that wait look at what is booked and cancelled there.

        In a transaction of its own: a poll holds its machine's row, and may wait for what a
        booking has changed.
        """
        with self._lock:
            machines, cancelled = self._to_tell - {""}, dict(self._to_cancel)
            heard = set(self._heard)
        if not (machines or cancelled or heard):
            return
        with self._database.write() as session:
            bookings = Bookings(session)
            ends = [bookings.cancel(one, grace) for one, grace in cancelled.items()]
            machines |= {one for one in ends if one is not None}
            if machines:
                Machines(session).note_changes(machines)
            if heard:
                bookings.drop(heard)
        # After the commit: where there was none, it is still to be done.
        with self._lock:
            self._to_tell -= machines
            self._heard -= heard
            for attempt_id, grace in cancelled.items():
                if self._to_cancel.get(attempt_id) == grace:
                    del self._to_cancel[attempt_id]

    def _look(self) -> None:
        """Take ends that are written down, where anything was since the last look."""
        if not self._running or not self._has_news():
            return
        with self._database.read() as session:
            exits = Bookings(session).exits(self._owner)
        with self._lock:
            for booking in exits:
                self._note(_exit(booking))
            self._heard |= {booking.attempt_id for booking in exits}

    def _has_news(self) -> bool:
        """Whether anything was written since the last look."""
        seen, before = self._changes.look(), self._seen
        self._seen = seen
        return seen is None or seen != before

    def _told(self) -> Sequence[Exit]:
        with self._lock:
            told, self._exits = self._exits, []
        return told

    def _note(self, ended: Exit) -> None:
        # One of a coordinator of our name that died is no attempt of ours.
        if ended.attempt_id in self._running:
            self._running.remove(ended.attempt_id)
            self._exits.append(ended)

    def _miss(self, bookings: Sequence[TakenPlace]) -> None:
        """Tell the end of attempts whose bookings went with a machine that was forgotten."""
        known = {booking.attempt_id for booking in bookings}
        with self._lock:
            for attempt_id in sorted(self._running - known):
                self._note(Exit(attempt_id, None, None, "lost: its machine went away for good"))

    def _alive(self, machines: Sequence[MachineRecord]) -> list[MachineRecord]:
        """Those that renewed their row lately by our own clock, see Note [Whose clock].

        At the first look there is nothing to compare with. The row's own time then says which to
        doubt until they are heard of; a wrong guess costs the lease of an attempt.
        """
        if self._doubtful is None:
            since = datetime.now(UTC) - timedelta(seconds=self._lease_seconds)
            self._doubtful = {one.id: one.seen_at for one in machines if one.seen_at < since}
        heard = {machine.id: machine.seen_at for machine in machines}
        self._note_heard(heard)
        stale = self._watch.stale(heard)
        return [
            machine
            for machine in machines
            if machine.id not in stale
            and not machine.leaving
            and self._doubtful.get(machine.id) != machine.seen_at
        ]

    def _note_heard(self, heard: Mapping[str, datetime]) -> None:
        now = self._clock()
        if any(self._last_heard.get(name) != at for name, at in heard.items()):
            if now - self._heard_at > self._lease_seconds / 2 or self._heard_since is None:
                self._heard_since = now
            self._heard_at = now
        elif now - self._heard_at > self._lease_seconds / 2:
            self._heard_since = None
        self._last_heard = heard

    def _free_or_ours(
        self, machines: Sequence[MachineRecord], bookings: Sequence[TakenPlace]
    ) -> Sequence[Slot]:
        others = {
            (booking.machine_id, slot_of(booking.place))
            for booking in bookings
            if booking.owner != self._owner and booking.state != BookingState.EXITED
        }
        return [
            _slot(machine.name, place)
            for machine in machines
            for place in machine.slots
            if (machine.id, place.name) not in others
        ]


def _slot(machine: str, place: PlaceRecord) -> Slot:
    named: dict[str, Any] = {**vars(place), "name": f"{machine}/{place.name}", "machine": machine}
    return Slot(**named)


def _place(slot: Slot) -> str:
    """What the machine itself calls a slot, or one of the places on it."""
    name = slot.name.replace(f"{slot.machine}/", "", 1)
    return f"{name}{PLACE_SIGN}{slot.number}" if slot.number else name


def _exit(booking: BookingRecord) -> Exit:
    return Exit(
        booking.attempt_id,
        booking.returncode,
        booking.signal,
        "it ended" if booking.detail is None else booking.detail,
        booking.cause or AttemptCause.LOST,
    )


if TYPE_CHECKING:
    _conforms: type[Executor] = RemoteExecutor
