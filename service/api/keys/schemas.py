"""API keys: what may be asked for, and what is answered."""

from datetime import datetime
from typing import Annotated

from pydantic import ConfigDict, Field

from models.spec import Spec
from service.api.keys.durations import LIFETIME_PATTERN, PATTERN
from service.auth.principal import LONGEST_NAME, Scope, UserScope
from storage.account_records import KeyState

_Overlap = Annotated[str, Field(pattern=PATTERN)]
"""A whole number of minutes, hours, days or weeks: `30m`, `12h`, `90d`, `4w`."""


_Lifetime = Annotated[str, Field(pattern=LIFETIME_PATTERN)]


class KeyRequest(Spec):
    """The key that is asked for."""

    model_config = ConfigDict(
        json_schema_extra={
            "examples": [{"name": "laptop", "scopes": ["write"], "expires_in": "90d"}]
        }
    )

    name: Annotated[str, Field(min_length=1, max_length=LONGEST_NAME)] = Field(
        description="what it is for, or who has it; people are shown it"
    )
    scopes: tuple[UserScope, ...] = Field(
        default=("write",),
        min_length=1,
        description="`read`, `write` or `admin`, each of which includes those before it",
    )
    expires_in: _Lifetime | None = Field(
        default=None,
        description="after how long it ends by itself, such as `90d`; by default never",
    )


class RotationRequest(Spec):
    """How a key is to be replaced by a new one."""

    model_config = ConfigDict(json_schema_extra={"examples": [{"overlap": "7d"}]})

    overlap: _Overlap = Field(
        default="1d", description="how long the old key goes on beside the new one; `0d`: no longer"
    )
    expires_in: _Lifetime | None = Field(
        default=None,
        description="after how long the new key ends by itself; by default after as long as the "
        "old one was made for",
    )


class KeyDocument(Spec):
    """A key, without its text."""

    id: str
    name: str
    tenant: str
    scopes: tuple[Scope, ...]
    created_at: datetime
    last_used_at: datetime | None = Field(description="to the minute")
    revoked_at: datetime | None
    expires_at: datetime | None = Field(description="when it ends by itself; null: never")
    successor: str | None = Field(description="the id of the key that it was rotated to")
    state: KeyState


class NewKeyDocument(KeyDocument):
    """A key that was just made."""

    key: str = Field(description="its text, which is shown here and never again")


class KeyPage(Spec):
    """Keys, newest first."""

    items: tuple[KeyDocument, ...]
    next_cursor: str | None
