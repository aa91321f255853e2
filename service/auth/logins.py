"""Browsers that are logged in: sessions in the database, of which the cookie names one."""

import secrets
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from anyio import to_thread

from service.auth.keyring import USED_EVERY
from service.auth.remembered import Remembered
from storage.account_records import ApiKeyRecord, BrowserSessionRecord, KeyState
from storage.accounts.audit import Audit
from storage.accounts.browser_sessions import BrowserSessions
from storage.accounts.keys import Keys, key_digest
from storage.engine import Database
from storage.errors import DatabaseUnavailable

_MOST_BROWSERS = 100
"""So many are logged in with one key at a time: one more ends the session used longest ago."""


@dataclass(frozen=True)
class Login:
    """A browser's session, and the key that it logged in with."""

    session: BrowserSessionRecord
    key: ApiKeyRecord


class Logins:
    """Begins, finds and ends sessions. What other processes end ends here after `remember` seconds.

    A session ends by logging out, with its key, after `seconds`, and after `idle_seconds` without a
    request. All methods raise `DatabaseUnavailable` when the database does not answer.
    """

    def __init__(
        self, database: Database, *, seconds: int, idle_seconds: int, remember: float = 1.0
    ) -> None:
        self._database = database
        self.seconds = seconds
        self._idle = timedelta(seconds=idle_seconds)
        self._remembered = Remembered(seconds=remember)

    async def find(self, text: str | None) -> Login | None:
        """The session whose cookie has this text; null where it has ended, or never was."""
        if text is None:
            return None
        digest = key_digest(text)
        login = await self._remembered.get(digest, lambda: self._find(digest))
        now = datetime.now(UTC)
        if login is None or login.session.expires_at <= now:
            return None
        return login if login.key.state_at(now) == KeyState.VALID else None

    async def begin(self, key: ApiKeyRecord, *, replacing: str | None, address: str) -> str:
        """Log a browser in, in place of the session that it had; the text for its cookie."""
        text = secrets.token_urlsafe(32)
        await to_thread.run_sync(self._begin, key, text, replacing, address)
        self._remembered.forget()
        return text

    async def end(self, text: str | None, *, everywhere: bool = False) -> None:
        """Log a browser out, or (`everywhere`) all that logged in with the same key."""
        login = await self.find(text)
        if login is not None:
            await to_thread.run_sync(self._end, login, everywhere)
            self._remembered.forget()

    async def count(self, key: ApiKeyRecord) -> int:
        """How many browsers are logged in with a key."""
        return await to_thread.run_sync(self._count, key.id)

    def _find(self, digest: str) -> Login | None:
        now = datetime.now(UTC)
        with self._database.read() as session:
            found = BrowserSessions(session).find(digest, at=now)
        if found is None:
            return None
        login = Login(*found)
        if now - login.session.last_used_at > USED_EVERY:
            # A database that takes nothing just now must not keep anybody from reading.
            with suppress(DatabaseUnavailable), self._database.write() as session:
                ends = self._ends(login.session.created_at, now)
                BrowserSessions(session).touch(digest, at=now, expires_at=ends)
                Keys(session).touch(login.key.id, at=now)
        return login

    def _ends(self, created_at: datetime, used_at: datetime) -> datetime:
        return min(created_at + timedelta(seconds=self.seconds), used_at + self._idle)

    def _begin(self, key: ApiKeyRecord, text: str, replacing: str | None, address: str) -> None:
        now = datetime.now(UTC)
        record = BrowserSessionRecord(
            digest=key_digest(text),
            tenant=key.tenant,
            key_id=key.id,
            created_at=now,
            last_used_at=now,
            expires_at=self._ends(now, now),
        )
        # What the browser had before may be another tenant's, which this session cannot see.
        self._forget(replacing)
        with self._database.of(key.tenant, key_id=key.id).write() as session:
            sessions = BrowserSessions(session)
            sessions.sweep(at=now)
            sessions.end_oldest(key.id, keep=_MOST_BROWSERS - 1)
            sessions.add(record)
            Audit(session).note("login", key.id, address=address)

    def _forget(self, text: str | None) -> None:
        if text is not None:
            with self._database.write() as session:
                BrowserSessions(session).end(key_digest(text))

    def _end(self, login: Login, everywhere: bool) -> None:
        key = login.key
        with self._database.of(key.tenant, key_id=key.id).write() as session:
            sessions = BrowserSessions(session)
            if everywhere:
                ended = sessions.end_all(key.id)
            else:
                ended = int(sessions.end(login.session.digest))
            if ended:
                Audit(session).note("logout", key.id, browsers=ended)

    def _count(self, key_id: str) -> int:
        with self._database.read() as session:
            return BrowserSessions(session).count(key_id, at=datetime.now(UTC))
