"""Keys, browser sessions and audit events as the repositories return them."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from storage.records import Json


class KeyState(StrEnum):
    """Whether an API key opens anything; the last two are ends."""

    VALID = "valid"
    EXPIRED = "expired"
    REVOKED = "revoked"


@dataclass(frozen=True, kw_only=True)
class ApiKeyRecord:
    """An API key; its text is known to nobody but its holder."""

    id: str
    tenant: str
    name: str
    scopes: tuple[str, ...]
    created_at: datetime
    last_used_at: datetime | None = None
    """When it was last used, to the minute or so."""
    revoked_at: datetime | None = None
    expires_at: datetime | None = None
    """When it ends by itself; null: never."""
    successor: str | None = None
    """The id of the key that it was rotated to."""

    def state_at(self, at: datetime) -> KeyState:
        """Whether it opens anything at a time, or else why not."""
        if self.revoked_at is not None:
            return KeyState.REVOKED
        has_expired = self.expires_at is not None and self.expires_at <= at
        return KeyState.EXPIRED if has_expired else KeyState.VALID


@dataclass(frozen=True, kw_only=True)
class BrowserSessionRecord:
    """A browser that logged in with a key, and stays so until `expires_at` at the latest."""

    digest: str
    """Of the text in its cookie, by which it is known."""
    tenant: str
    key_id: str
    created_at: datetime
    last_used_at: datetime
    """To the minute or so."""
    expires_at: datetime
    """Moves on with use, where idle sessions end sooner than others."""


@dataclass(frozen=True, kw_only=True)
class AuditRecord:
    """Something that a user did."""

    id: str
    at: datetime
    key_id: str | None
    """The API key with which it was done; null for the local user and the command line."""
    action: str
    subject: str
    """The id of what it was done to."""
    detail: dict[str, Json]
