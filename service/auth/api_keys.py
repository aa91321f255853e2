"""Making, rotating and ending API keys: 256 random bits, shown once, of which a digest is kept."""

import re
import secrets
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from sqlalchemy.orm import Session

from service.auth.principal import LONGEST_NAME, Scope, including_lower
from storage.account_records import ApiKeyRecord, KeyState
from storage.accounts.audit import Audit
from storage.accounts.browser_sessions import BrowserSessions
from storage.accounts.keys import Keys, key_digest
from storage.engine import Database
from storage.errors import Conflict
from storage.tenants import tenant_of

OVERLAP = timedelta(days=1)
"""How long a key that is rotated goes on beside its successor, unless somebody says otherwise."""

_TENANT = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}")
_PREFIX = "rfl_"
_TEXT = re.compile(rf"{_PREFIX}[A-Za-z0-9_-]{{43}}")


def check_names(*, tenant: str, name: str) -> str | None:
    """What is wrong with the name of a tenant or of a key; null when nothing is."""
    if not _TENANT.fullmatch(tenant):
        return (
            f"{tenant!r} is no tenant's name; allowed are up to 63 of a-z, 0-9, dot, hyphen and "
            "underscore, the first of them a letter or a digit"
        )
    if not 0 < len(name) <= LONGEST_NAME:
        return f"a key's name has 1 to {LONGEST_NAME} characters, not {len(name)}"
    return None


class NewKey(NamedTuple):
    """A key and its text, which nobody can find out later."""

    record: ApiKeyRecord
    text: str


def looks_like_a_key(text: str) -> bool:
    """Whether a text could be a key at all."""
    return _TEXT.fullmatch(text) is not None


def create_key(
    database: Database,
    *,
    name: str,
    scopes: Iterable[Scope],
    lifetime: timedelta | None = None,
) -> NewKey:
    """Make a key for the tenant as whom the database is used (`Database.of`).

    It ends by itself after `lifetime`; null: never.
    """
    with database.write() as session:
        made = _add(session, name=name, scopes=including_lower(scopes), lifetime=lifetime)
        record = made.record
        Audit(session).note(
            "key.created",
            record.id,
            name=name,
            scopes=list(record.scopes),
            expires_at=_shown(record.expires_at),
        )
    return made


def rotate_key(
    database: Database,
    key_id: str,
    *,
    overlap: timedelta = OVERLAP,
    lifetime: timedelta | None = None,
) -> NewKey:
    """Make a key that takes another's place, which then goes on for `overlap` and ends.

    The new one has the same name, scopes and tenant, and ends by itself after `lifetime`; by
    default after as long as the old one was made for.

    Raises:
        NotFound: the tenant has no such key.
        Conflict: the key has ended, or was rotated before.
    """
    with database.write() as session:
        keys = Keys(session)
        old = keys.get(key_id)
        now = datetime.now(UTC)
        state = old.state_at(now)
        if state != KeyState.VALID:
            raise Conflict(
                f"key {key_id!r} is {state}; only valid keys are rotated: make a new one"
            )
        if lifetime is None and old.expires_at is not None:
            lifetime = old.expires_at - old.created_at
        made = _add(session, name=old.name, scopes=old.scopes, lifetime=lifetime)
        ends = min(now + overlap, old.expires_at or now + overlap)
        if not keys.rotate(key_id, successor=made.record.id, ends=ends):
            raise Conflict(f"key {key_id!r} was rotated before; rotate its successor")
        Audit(session).note(
            "key.rotated",
            key_id,
            name=old.name,
            successor=made.record.id,
            ends_at=_shown(ends),
            expires_at=_shown(made.record.expires_at),
        )
    return made


def revoke_key(database: Database, key_id: str) -> ApiKeyRecord:
    """Let a key open nothing any more, and end its browsers' sessions; repeating it is harmless.

    Raises:
        NotFound: the tenant has no such key.
    """
    with database.write() as session:
        keys = Keys(session)
        if keys.revoke(key_id, at=datetime.now(UTC)):
            BrowserSessions(session).end_all(key_id)
            Audit(session).note("key.revoked", key_id, name=keys.get(key_id).name)
        return keys.get(key_id)


def reset_keys(database: Database) -> list[str]:
    """Remove the keys of all tenants, so that the local user is let in again; their ids.

    Raises:
        Conflict: a key is still valid.
    """
    with database.write() as session:
        keys = Keys(session)
        if keys.any_valid(at=datetime.now(UTC)):
            raise Conflict(
                "some keys are still valid; revoke them first, see `reflectory keys list`"
            )
        removed = keys.remove_all()
        if removed:
            Audit(session).note("keys.reset", "", keys=[*removed])
    return removed


def _add(
    session: Session, *, name: str, scopes: tuple[str, ...], lifetime: timedelta | None
) -> NewKey:
    text = f"{_PREFIX}{secrets.token_urlsafe(32)}"
    now = datetime.now(UTC)
    record = ApiKeyRecord(
        id=secrets.token_hex(6),
        tenant=tenant_of(session),
        name=name,
        scopes=scopes,
        created_at=now,
        expires_at=None if lifetime is None else now + lifetime,
    )
    return NewKey(Keys(session).add(record, digest=key_digest(text)), text)


def _shown(at: datetime | None) -> str | None:
    return None if at is None else at.isoformat(timespec="seconds")
