"""The attempts that a round starts: collected as it goes, and written together at its end."""

import logging
import platform
import secrets
from collections.abc import Callable, Generator, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import groupby
from operator import attrgetter
from typing import final

from sqlalchemy.orm import Session

from search.agents.executors import AttemptTicket, Executor, Slot
from search.running import token_digest
from search.training.jobs import Job
from storage.accounts.quotas import Quotas
from storage.engine import Database
from storage.errors import ClaimLost, Conflict, QuotaReached
from storage.records import AttemptKind, AttemptRecord, AttemptState
from storage.repositories.attempts import Attempts
from storage.repositories.studies import Studies

_log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class Start:
    """An attempt that is to start on a slot."""

    study_id: str
    tenant: str
    kind: AttemptKind
    job: Job
    trial: int | None
    slot: Slot
    ticket: Callable[[AttemptRecord], AttemptTicket]
    """What its process is started with, by its row."""
    also: Callable[[Session], None] | None
    """Done in the transaction that writes the row."""
    counts: bool
    """Whether the tenant's quota of slots is held against it."""
    ahead: bool
    """Whether it waits on the slot's machine for the attempt that the slot has."""
    attempt_id: str = field(default_factory=lambda: secrets.token_hex(8))


@dataclass
class Outcome:
    """What became of the starts of a round."""

    started: list[tuple[Start, AttemptRecord, AttemptTicket]] = field(
        default_factory=list[tuple[Start, AttemptRecord, AttemptTicket]]
    )
    refused: list[Start] = field(default_factory=list[Start])
    lost_claims: dict[str, ClaimLost] = field(default_factory=dict[str, ClaimLost])
    """Studies that are another coordinator's."""
    quotas_used: dict[str, int] = field(default_factory=dict[str, int])
    """How many slots those tenants have in all that may have no more."""


@final
class Starts:
    """Collects starts; `write` makes rows of all of them in one transaction.

    Args:
        database: where the rows go.
        executor: who takes their places.
        owner: the coordinator, which has to have their studies.
        lease_seconds: how long each is leased at first.
    """

    def __init__(
        self, database: Database, executor: Executor, *, owner: str, lease_seconds: float
    ) -> None:
        self._database = database
        self._executor = executor
        self._owner = owner
        self._lease = timedelta(seconds=lease_seconds)
        self._waiting: list[Start] = []

    def add(self, start: Start) -> None:
        """Have it written with the others."""
        self._waiting.append(start)

    def drop(self) -> Set[str]:
        """Forget what waits; returns its attempts' ids."""
        dropped, self._waiting = self._waiting, []
        return {start.attempt_id for start in dropped}

    def write(self) -> Outcome:
        """Write what was added, study by study; one that is refused undoes nothing of the others.

        Raises:
            DatabaseUnavailable: nothing is known to be written, and everything waits still.
        """
        outcome = Outcome()
        if not self._waiting:
            return outcome
        # In the order in which all that take several studies lock them.
        of_study = attrgetter("study_id")
        with self._database.write() as session:
            for study_id, starts in groupby(sorted(self._waiting, key=of_study), key=of_study):
                self._of_study(session, study_id, [*starts], outcome)
        self._waiting = []
        return outcome

    def _of_study(
        self, session: Session, study_id: str, starts: Sequence[Start], outcome: Outcome
    ) -> None:
        made: list[tuple[Start, AttemptRecord, AttemptTicket]] = []
        refused: set[str] = set()
        """Slots whose first attempt got none: what was to join it begins nothing by itself."""
        try:
            with session.begin_nested():
                Studies(session).prove_claim(study_id, self._owner)
                for start in starts:
                    if start.slot.name in refused:
                        continue
                    written = None
                    with _noting_quotas(outcome, start):
                        written = self._one(session, start)
                    if written is not None:
                        made.append((start, *written))
                    elif start.counts:
                        refused.add(start.slot.name)
        except ClaimLost as lost:
            outcome.lost_claims[study_id] = lost
            made.clear()
        except Conflict as conflict:
            # It was decided by rows that have changed since, and is decided anew by those.
            _log.warning("nothing was started", extra={"study_id": study_id, "reason": conflict})
            made.clear()
        outcome.started += made
        done = {start.attempt_id for start, _, _ in made}
        outcome.refused += [start for start in starts if start.attempt_id not in done]

    def _one(self, session: Session, start: Start) -> tuple[AttemptRecord, AttemptTicket] | None:
        """Write one attempt; null where another attempt has its place."""
        if start.counts:
            Quotas(session).make_room("slots", tenant=start.tenant)
        attempts, now, slot = Attempts(session), datetime.now(UTC), start.slot
        attempt = AttemptRecord(
            id=start.attempt_id,
            study_id=start.study_id,
            kind=start.kind,
            trial=start.trial,
            number=attempts.next_number(start.study_id, start.kind, start.trial),
            state=AttemptState.ASSIGNED if start.ahead else AttemptState.RUNNING,
            job=start.job.model_dump(mode="json"),
            slot=slot.name,
            slot_share=slot.share,
            device=slot.device,
            lease_until=now + self._lease,
            started_at=now,
            machine=slot.machine or platform.node(),
        )
        ticket = start.ticket(attempt)
        if not self._executor.book(session, ticket, slot, ahead=start.ahead):
            return None
        # Nobody has this one: its machine gets one of its own.
        attempts.start(attempt, token_digest=token_digest(secrets.token_urlsafe(32)))
        if start.also is not None:
            start.also(session)
        return attempt, ticket


@contextmanager
def _noting_quotas(outcome: Outcome, start: Start) -> Generator[None]:
    """Go on without a start for which its tenant has no slot left."""
    try:
        yield
    except QuotaReached as reached:
        outcome.quotas_used[start.tenant] = reached.used
