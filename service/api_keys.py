"""Making and revoking API keys: 256 random bits, shown once, of which a digest is kept."""

import re
import secrets
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import NamedTuple

from service.principal import Scope, including_lower
from storage.audit import Audit
from storage.engine import Database
from storage.keys import Keys, key_digest
from storage.records import ApiKeyRecord
from storage.tenants import tenant_of

LONGEST_NAME = 100

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


def create_key(database: Database, *, name: str, scopes: Iterable[Scope]) -> NewKey:
    """Make a key for the tenant as whom the database is used (`Database.of`)."""
    text = f"{_PREFIX}{secrets.token_urlsafe(32)}"
    with database.write() as session:
        record = Keys(session).add(
            ApiKeyRecord(
                id=secrets.token_hex(6),
                tenant=tenant_of(session),
                name=name,
                scopes=including_lower(scopes),
                created_at=datetime.now(UTC),
            ),
            digest=key_digest(text),
        )
        Audit(session).note("key.created", record.id, name=name, scopes=list(record.scopes))
    return NewKey(record, text)


def revoke_key(database: Database, key_id: str) -> ApiKeyRecord:
    """Let a key open nothing any more; asking twice is harmless.

    Raises:
        NotFound: the tenant has no such key.
    """
    with database.write() as session:
        keys = Keys(session)
        if keys.revoke(key_id, at=datetime.now(UTC)):
            Audit(session).note("key.revoked", key_id, name=keys.get(key_id).name)
        return keys.get(key_id)
