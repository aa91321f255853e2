"""Who makes a request, and what that one may do."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

from storage.account_records import ApiKeyRecord
from storage.records import LOCAL

UserScope: TypeAlias = Literal["read", "write", "admin"]
"""From the least to the most; each includes those before it."""

Scope: TypeAlias = Literal["read", "write", "admin", "work"]
"""`work` is for worker machines: it includes nothing, and nothing includes it. A machine runs the
attempts of every tenant, so that only who has the database gives such a key."""

SCOPES: tuple[UserScope, ...] = get_args(UserScope)
"""What people may do, from the least to the most."""

WORK: Literal["work"] = "work"

LONGEST_NAME = 100
"""Characters of a key's name."""


@dataclass(frozen=True, kw_only=True)
class Principal:
    """Who makes a request, for which tenant, and by what we know that."""

    tenant: str
    key_id: str | None
    """Null for the local user, who has no key."""
    key_name: str | None
    scopes: tuple[Scope, ...]
    via: Literal["key", "cookie", "local"]
    session: str | None = None
    """The digest of the browser's session, for one that logged in."""

    @property
    def label(self) -> str:
        """How people see who it was."""
        return "the local user" if self.key_name is None else f"key {self.key_name!r}"


LOCAL_USER = Principal(
    tenant=LOCAL, key_id=None, key_name=None, scopes=(*SCOPES, WORK), via="local"
)
"""The user of this machine, until the first key is made."""


OWN_AGENT = Principal(tenant=LOCAL, key_id=None, key_name=None, scopes=(WORK,), via="local")
"""The agent of the server's own machine, which comes by a socket that is its owner's alone."""


def principal_of(
    key: ApiKeyRecord, *, via: Literal["key", "cookie"], session: str | None = None
) -> Principal:
    """Who shows a key, or the cookie of a session that began with it."""
    scopes = including_lower(scope for scope in (*SCOPES, WORK) if scope in key.scopes)
    return Principal(
        tenant=key.tenant,
        key_id=key.id,
        key_name=key.name,
        scopes=scopes,
        via=via,
        session=session,
    )


def including_lower(scopes: Iterable[Scope]) -> tuple[Scope, ...]:
    """The scopes with those that they include, from the least to the most."""
    named = set(scopes)
    highest = max((SCOPES.index(scope) for scope in SCOPES if scope in named), default=-1)
    return (*SCOPES[: highest + 1], *((WORK,) if WORK in named else ()))
