"""Leases of attempts as an API process knows them: looked up, and remembered for a moment.

What this says decides only who may speak. Whether a word still counts is decided by the transaction
that it acts in, see `search.running.attempts`: a lease that ended a moment ago changes nothing.
"""

import hmac
import time
from collections import OrderedDict
from datetime import UTC, datetime

from anyio import CapacityLimiter, to_thread

from search.running.attempts import LAST_WORDS, token_digest
from storage.engine import Database
from storage.errors import LeaseLost
from storage.records import AttemptState, LeaseRecord
from storage.repositories.attempts import Attempts

_REMEMBERED = 8192
_LOOKS = 4
"""Threads of their own, so that a worker is heard whatever keeps those of the routes busy."""


class Leases:
    """Finds the leases that tokens belong to, and remembers them for `seconds`."""

    def __init__(self, database: Database, *, seconds: float = 5.0) -> None:
        self._database = database
        self._seconds = seconds
        self._known: OrderedDict[tuple[str, str], tuple[float, LeaseRecord]] = OrderedDict()
        self._limiter = CapacityLimiter(_LOOKS)

    def remembered(self, attempt_id: str, token: str) -> LeaseRecord | None:
        """The lease, if it was found a moment ago; costs no look at the database."""
        known = self._known.get((attempt_id, token_digest(token)))
        return known[1] if known is not None and time.monotonic() < known[0] else None

    async def find(self, attempt_id: str, token: str) -> LeaseRecord | None:
        """The lease of this attempt; null where there is none, or the token is another's.

        Raises:
            DatabaseUnavailable: the database does not answer.
        """
        began, digest = time.monotonic(), token_digest(token)
        lease = await to_thread.run_sync(self._look, attempt_id, limiter=self._limiter)
        if lease is None or not hmac.compare_digest(lease.token_digest, digest):
            return None
        self._known.pop((attempt_id, digest), None)
        self._known[attempt_id, digest] = (began + self._seconds, lease)
        if len(self._known) > _REMEMBERED:
            self._known.popitem(last=False)
        return lease

    def _look(self, attempt_id: str) -> LeaseRecord | None:
        with self._database.read() as session:
            return Attempts(session).lease(attempt_id)


def check_call(lease: LeaseRecord, attempt_id: str, call: str) -> None:
    """Refuse a call that the lease does not allow any more.

    Raises:
        LeaseLost: the attempt has ended, and this is none of what may still be said.
    """
    if lease.state is AttemptState.RUNNING or call == "complete":
        return
    ended = lease.ended_at
    if call == "log" and ended is not None and datetime.now(UTC) - ended <= LAST_WORDS:
        return
    raise LeaseLost(f"attempt {attempt_id!r} holds no lease (any more); stop working on it")
