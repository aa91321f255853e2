"""Calls of agents, answered; `search.agents.protocol` has the rules."""

import logging
import secrets
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from operator import attrgetter
from typing import final

from sqlalchemy.orm import Session

from search.agents.executors.remote import OFFERS
from search.agents.protocol import (
    End,
    Join,
    Joined,
    Offer,
    Orders,
    Poll,
    Sync,
    Synced,
)
from search.errors import MachineRefused
from search.running.attempts import token_digest
from search.running.study_context import GRACE_SECONDS
from search.running.sync import SyncTaker
from storage.blobs.artifacts import ArtifactStore
from storage.endings import AttemptCause
from storage.engine import Database
from storage.errors import LeaseLost
from storage.fleet.bookings import BookingRecord, Bookings
from storage.fleet.machines import MachineRecord, Machines, PlaceRecord
from storage.records import AttemptState, BookingState
from storage.repositories.attempts import Attempts

_log = logging.getLogger(__name__)

_FORGOTTEN_AFTER = timedelta(days=1)
"""How long machines that went away without a word, and ends that nobody asks for, are known."""


@final
class AgentHandler:
    """Takes the words of agents.

    All methods raise `MachineRefused` when the process is not the one that joined last, or is of
    another version.
    """

    def __init__(
        self, database: Database, store: ArtifactStore, *, version: str, lease_seconds: float
    ) -> None:
        self._database = database
        self._syncs = SyncTaker(database, store, lease_seconds=lease_seconds)
        self._version = version
        self._lease_seconds = lease_seconds

    def join(self, body: Join) -> Joined:
        """Take a machine with its slots; joining again is harmless."""
        if body.version != self._version:
            raise MachineRefused(
                f"the machine runs version {body.version} of the program, and the server "
                f"{self._version}: trials are to be equal wherever they run, so install "
                f"{self._version} there"
            )
        now = datetime.now(UTC)
        with self._database.write() as session:
            gone = Machines(session).remove_unseen(now - _FORGOTTEN_AFTER)
            Bookings(session).forget_machines(gone)
            Bookings(session).forget_ends(now - _FORGOTTEN_AFTER)
            before = Machines(session).find(body.machine)
            if body.was_killed and before is not None and before.session != body.session:
                for booking in Bookings(session).open(body.machine):
                    if booking.state == BookingState.RUNNING:
                        detail = "died with its machine's worker"
                        _exit(session, booking, detail, cause=AttemptCause.DIED)
            machine = Machines(session).join(
                body.machine,
                name=body.name,
                version=body.version,
                session=body.session,
                slots=[PlaceRecord(**slot.model_dump()) for slot in body.slots],
                at=now,
            )
        _log.info("a machine joined", extra={"machine": machine.name, "slots": len(machine.slots)})
        return Joined(name=machine.name, lease_seconds=self._lease_seconds)

    def poll(self, machine_id: str, body: Poll) -> tuple[Orders, int]:
        """Note what runs, and say what should; also how far the machine's changes were then."""
        with self._database.write() as session:
            machine = Machines(session).poll(
                machine_id, session=body.session, number=body.number, at=datetime.now(UTC)
            )
            if machine is None:
                raise _unknown(machine_id)
            if machine.version != self._version:
                raise MachineRefused(f"machine {machine.name} has to join again: the server is new")
            return self._orders(session, machine, body), machine.changes

    def again(self, machine_id: str, body: Poll) -> Orders:
        """What there is to do for a poll that waited; nothing, when a newer one came meanwhile."""
        with self._database.write() as session:
            machine = Machines(session).again(
                machine_id, session=body.session, number=body.number, at=datetime.now(UTC)
            )
            return Orders() if machine is None else self._orders(session, machine, body)

    def sync(self, machine_id: str, body: Sync, contents: Sequence[bytes]) -> Synced:
        """Take what a machine says of its attempts; what is known already is passed over.

        `contents` are the bytes of the items that bring some, in their order.
        """
        with self._database.read() as session:
            self._joined(session, machine_id, body.session)
        taking = self._syncs.prepared(body, contents)
        with self._database.write() as session:
            machine = self._joined(session, machine_id, body.session)
            synced = taking.take(session, machine_id)
            _remove_if_done(session, machine)
        taking.clean_up()
        return synced

    def leave(self, machine_id: str, session_id: str) -> None:
        """Give a machine nothing more; it is gone when what runs there has ended."""
        with self._database.write() as session:
            machine = Machines(session).leave(machine_id, session=session_id)
            if machine is None:
                raise _unknown(machine_id)
            for booking in Bookings(session).open(machine_id):
                if booking.state != BookingState.RUNNING:
                    _exit(session, booking, "not started: the machine left")
            _remove_if_done(session, machine)
        _log.info("a machine leaves", extra={"machine": machine.name})

    def _joined(self, session: Session, machine_id: str, session_id: str) -> MachineRecord:
        machine = Machines(session).find(machine_id)
        if machine is None or machine.session != session_id:
            raise _unknown(machine_id)
        return machine

    def _orders(self, session: Session, machine: MachineRecord, body: Poll) -> Orders:
        """Bring the bookings in line with what the machine says, and the machine with them."""
        bookings = {booking.attempt_id: booking for booking in Bookings(session).open(machine.id)}
        running = set(body.running)
        Bookings(session).run([name for name in bookings if name in running])
        offered: list[BookingRecord] = []
        for booking in bookings.values():
            if booking.attempt_id in running:
                continue
            if booking.state == BookingState.RUNNING:
                _exit(session, booking, "lost: its machine does not have it any more")
            elif booking.grace_seconds is not None:
                _exit(session, booking, "not started: it was called back before")
            elif not machine.leaving:
                offered.append(booking)
        # One that is ahead comes after the attempt that it is to follow.
        offered.sort(key=attrgetter("booked_at", "ahead"))
        return Orders(
            start=tuple(self._handed_over(session, offered)),
            end=tuple(_ends(session, bookings, body)),
        )

    def _handed_over(self, session: Session, offered: list[BookingRecord]) -> Iterator[Offer]:
        """Give each attempt a token that is new, and that is nowhere else."""
        now = datetime.now(UTC)
        until = now + timedelta(seconds=self._lease_seconds)
        for booking in offered:
            token = secrets.token_urlsafe(32)
            try:
                job = Attempts(session).hand_over(
                    booking.attempt_id, token_digest=token_digest(token), at=now, until=until
                )
            except LeaseLost:
                _exit(session, booking, "not started: it was over before")
                continue
            offer = OFFERS.validate_python(booking.offer)
            yield Offer(
                attempt=booking.attempt_id,
                token=token,
                place=booking.place,
                ahead=booking.ahead,
                job=dict(job),
                **vars(offer),
            )


def _ends(session: Session, bookings: Mapping[str, BookingRecord], body: Poll) -> Iterator[End]:
    """What runs there and should not: it was called back, or its lease is over."""
    states = Attempts(session).states(body.running)
    for attempt_id in body.running:
        booking, state = bookings.get(attempt_id), states.get(attempt_id)
        grace = None if booking is None else booking.grace_seconds
        # One that had its last word is about to end by itself.
        over = state is not AttemptState.ENDED and (
            booking is None or state is None or not state.is_open
        )
        if grace is None and over:
            grace = GRACE_SECONDS
        heard = body.ending.get(attempt_id)
        if grace is not None and (heard is None or grace < heard):
            yield End(attempt=attempt_id, grace_seconds=grace)


def _exit(
    session: Session,
    booking: BookingRecord,
    detail: str,
    *,
    cause: AttemptCause = AttemptCause.LOST,
) -> None:
    Bookings(session).exit(
        booking.attempt_id, machine_id=booking.machine_id, cause=cause, detail=detail
    )


def _remove_if_done(session: Session, machine: MachineRecord) -> None:
    if machine.leaving and not Bookings(session).open(machine.id):
        Machines(session).remove(machine.id)


def _unknown(machine_id: str) -> MachineRefused:
    return MachineRefused(
        f"machine {machine_id!r} has to join: it is not known here, another process joined in its "
        "place, or a newer poll of it was answered"
    )
