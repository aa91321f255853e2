"""API keys as an API process knows them: looked up in the database, and remembered for a moment."""

import time
from collections import OrderedDict
from collections.abc import Callable, Hashable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import TypeVar, cast

from anyio import to_thread

from service.api_keys import looks_like_a_key
from storage.engine import Database
from storage.errors import DatabaseUnavailable
from storage.keys import Keys, key_digest
from storage.records import ApiKeyRecord

_T = TypeVar("_T")

_USED_EVERY = timedelta(minutes=1)
"""How often it is written down that a key is used."""

_REMEMBERED = 1024


class KeyRing:
    """Finds keys. What other processes do to them acts here after `seconds` at the latest.

    All methods raise `DatabaseUnavailable` when the database does not answer.
    """

    def __init__(self, database: Database, *, seconds: float = 1.0) -> None:
        self._database = database
        self._seconds = seconds
        self._known: OrderedDict[Hashable, tuple[float, object]] = OrderedDict()

    async def find(self, text: str) -> ApiKeyRecord | None:
        """The key with this text, unless it was revoked."""
        if not looks_like_a_key(text):
            return None
        digest = key_digest(text)
        return await self._once(("digest", digest), lambda: self._find(digest=digest))

    async def get(self, key_id: str) -> ApiKeyRecord | None:
        """The key with this id, unless it was revoked."""
        return await self._once(("id", key_id), lambda: self._get(key_id))

    async def is_empty(self) -> bool:
        """Whether there is no key that was not revoked."""
        return await self._once("empty", self._is_empty)

    async def _once(self, what: Hashable, look: Callable[[], _T]) -> _T:
        known = self._known.get(what)
        if known is not None and time.monotonic() < known[0]:
            return cast(_T, known[1])
        began = time.monotonic()
        found = await to_thread.run_sync(look)
        # What is not there is not remembered: a new key acts at once, and guesses take no room.
        self._known.pop(what, None)
        if found is not None:
            self._known[what] = (began + self._seconds, found)
            if len(self._known) > _REMEMBERED:
                self._known.popitem(last=False)
        return found

    def _find(self, *, digest: str) -> ApiKeyRecord | None:
        with self._database.read() as session:
            key = Keys(session).find_valid(digest=digest)
        return self._used(key)

    def _get(self, key_id: str) -> ApiKeyRecord | None:
        with self._database.read() as session:
            keys = Keys(session)
            key = keys.get(key_id) if keys.valid_ones([key_id]) else None
        return self._used(key)

    def _is_empty(self) -> bool:
        with self._database.read() as session:
            return not Keys(session).any_valid()

    def _used(self, key: ApiKeyRecord | None) -> ApiKeyRecord | None:
        now = datetime.now(UTC)
        if key is not None and (key.last_used_at is None or now - key.last_used_at > _USED_EVERY):
            # A database that takes nothing just now must not keep anybody from reading.
            with suppress(DatabaseUnavailable), self._database.write() as session:
                Keys(session).touch(key.id, at=now)
        return key
