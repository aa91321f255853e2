"""The claims of one coordinator on studies: renewed while it lives, and taken over when it died."""

import time
from collections.abc import Collection, Mapping, Set
from datetime import UTC, datetime, timedelta
from typing import Final, final

from sqlalchemy.orm import Session

from search.agents.renewal_watch import RenewalWatch
from search.dispatch.coordinator_report import CLAIM_LEASES
from storage.engine import Database
from storage.repositories.studies import Studies

_NEVER: Final = datetime(1970, 1, 1, tzinfo=UTC)
"""No claim is as old as this, see `Studies.claim`."""


@final
class StudyClaims:
    """Claims studies for an owner, and knows which of the claims of others have run out.

    See Note [Late coordinators] and Note [Whose clock].
    """

    def __init__(self, database: Database, *, owner: str, lease_seconds: float) -> None:
        """A claim holds for `CLAIM_LEASES` leases."""
        self._database = database
        self._owner = owner
        self._lease_seconds = lease_seconds
        self._watch = RenewalWatch(CLAIM_LEASES * lease_seconds)
        self._theirs: Mapping[str, datetime] = {}
        self._stale: Set[str] = frozenset()
        self._renewed_at = 0.0
        """By the clock of `time.monotonic`."""

    def look(self, session: Session) -> None:
        """Read which studies others have."""
        self._theirs = Studies(session).claims(other_than=self._owner)
        self._stale = self._watch.stale(self._theirs)

    def is_anothers(self, study_id: str) -> bool:
        """Whether another's claim on a study held at the last look."""
        return study_id in self._theirs.keys() - self._stale

    def renew(self, studies: Collection[str]) -> Set[str]:
        """Those of our studies whose claims hold; they are renewed in time, all at once."""
        if not studies or time.monotonic() - self._renewed_at < self._lease_seconds / 4:
            return set(studies)
        self._renewed_at = time.monotonic()
        with self._database.write() as session:
            return Studies(session).renew(studies, owner=self._owner, until=self._until())

    def take(self, study_id: str) -> bool:
        """Claim a study, or renew our claim on it; false: it is another's."""
        # A claim that was renewed since is younger than the one that was seen to be stale.
        now = self._theirs[study_id] if study_id in self._stale else _NEVER
        with self._database.write() as session:
            return Studies(session).claim(study_id, owner=self._owner, now=now, until=self._until())

    def release(self, study_id: str) -> None:
        """Give a study up; harmless where another has it."""
        with self._database.write() as session:
            Studies(session).release(study_id, self._owner)

    def _until(self) -> datetime:
        return datetime.now(UTC) + timedelta(seconds=CLAIM_LEASES * self._lease_seconds)
