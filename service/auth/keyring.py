"""API keys as an API process knows them: looked up in the database, and remembered for a moment."""

import time
from contextlib import suppress
from datetime import UTC, datetime, timedelta

from anyio import to_thread

from service.auth.api_keys import looks_like_a_key
from service.auth.remembered import Remembered
from storage.account_records import ApiKeyRecord, KeyState
from storage.accounts.audit import Audit
from storage.accounts.keys import Keys, key_digest
from storage.engine import Database
from storage.errors import DatabaseUnavailable

USED_EVERY = timedelta(minutes=1)
"""How often it is written down that a key is used."""

_NOTED_SECONDS = 3600.0
"""How often it is noted that an expired key is shown."""

NEEDED = "an API key is needed, as `Authorization: Bearer <key>`; people log in with one at /login"
"""The message to a request without a key."""
_ENDED = (
    "; every key of this server has expired or was revoked: make one on its machine with "
    "`reflectory keys create NAME`"
)


class KeyRing:
    """Finds keys. What other processes do to them acts here after `seconds` at the latest.

    All methods raise `DatabaseUnavailable` when the database does not answer.
    """

    def __init__(self, database: Database, *, seconds: float = 1.0) -> None:
        self._database = database
        self._remembered = Remembered(seconds=seconds)
        self._noted: dict[str, float] = {}

    async def find(self, text: str) -> ApiKeyRecord | None:
        """The key with this text, unless it was revoked or has expired."""
        if not looks_like_a_key(text):
            return None
        digest = key_digest(text)
        key = await self._remembered.get(("digest", digest), lambda: self._find(digest))
        return key if key is not None and _is_valid(key) else None

    def was_found(self, text: str) -> bool:
        """Whether a key with this text was found a moment ago; looks nothing up."""
        return self._remembered.knows(("digest", key_digest(text)))

    async def is_empty(self) -> bool:
        """Whether no key was ever made; one that has ended counts."""
        return await self._remembered.get("empty", self._is_empty)

    async def what_is_needed(self) -> str:
        """What a server of loopback answers a request without a key, once keys were made."""
        ended = await self._remembered.get("ended", self._all_have_ended)
        return NEEDED + _ENDED if ended else NEEDED

    async def why_not(self, text: str) -> str:
        """Why a text that was shown is no valid key."""
        return await to_thread.run_sync(self._why_not, text)

    def _find(self, digest: str) -> ApiKeyRecord | None:
        with self._database.read() as session:
            key = Keys(session).find(digest=digest)
        if key is None or not _is_valid(key):
            return None
        now = datetime.now(UTC)
        if key.last_used_at is None or now - key.last_used_at > USED_EVERY:
            # A database that takes nothing just now must not keep anybody from reading.
            with suppress(DatabaseUnavailable), self._database.write() as session:
                Keys(session).touch(key.id, at=now)
        return key

    def _is_empty(self) -> bool:
        with self._database.read() as session:
            return not Keys(session).any()

    def _all_have_ended(self) -> bool:
        with self._database.read() as session:
            keys = Keys(session)
            return keys.any() and not keys.any_valid(at=datetime.now(UTC))

    def _why_not(self, text: str) -> str:
        with self._database.read() as session:
            key = Keys(session).find(digest=key_digest(text))
        if key is None or key.state_at(datetime.now(UTC)) != KeyState.EXPIRED:
            return "the key is not known here, or was revoked"
        if time.monotonic() >= self._noted.get(key.id, 0.0):
            self._noted[key.id] = time.monotonic() + _NOTED_SECONDS
            of_its_tenant = self._database.of(key.tenant, key_id=key.id)
            with suppress(DatabaseUnavailable), of_its_tenant.write() as session:
                Audit(session).note("key.expired", key.id, name=key.name)
        return f"the key has expired, at {key.expires_at:%Y-%m-%d %H:%M:%S} UTC"


def _is_valid(key: ApiKeyRecord) -> bool:
    return key.state_at(datetime.now(UTC)) == KeyState.VALID
