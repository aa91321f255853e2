"""The server itself: how it is, who has keys to it, and what was done with them."""

from datetime import datetime
from typing import Any, Literal

from pydantic import Field

from service.answers.base import Answer


class Health(Answer):
    """How the server is."""

    status: str


class SlotAttempt(Answer):
    """What runs on a slot; no trial for a job of the whole study."""

    study: str
    trial: int | None = None
    kind: str
    since: datetime


class Slot(Answer):
    """A place where one attempt at a time runs; a busy one may work for others."""

    name: str
    share: float
    busy: bool
    attempt: SlotAttempt | None = None


class Lane(Answer):
    """A device's measuring lane."""

    state: Literal["free", "waiting", "measuring"]
    study: str | None = None
    trial: int | None = None


class Device(Answer):
    """A device of a machine that runs studies."""

    machine: str
    device: str
    model: str
    slots: list[Slot]
    lane: Lane


class Devices(Answer):
    """All devices, by machine."""

    items: list[Device]


class MachineSlot(Answer):
    """A place on a machine where one attempt at a time runs."""

    name: str
    device: str
    model: str
    share: float


class Machine(Answer):
    """A machine that joined."""

    id: str
    name: str
    version: str
    leaving: bool
    joined_at: datetime
    seen_at: datetime
    slots: list[MachineSlot]


class Machines(Answer):
    """All machines that joined."""

    items: list[Machine]


class Key(Answer):
    """An API key, without its text."""

    id: str
    name: str
    tenant: str
    scopes: list[str]
    created_at: datetime
    last_used_at: datetime | None = None
    revoked_at: datetime | None = None


class NewKey(Key):
    """A key that was just made; its text is told this once."""

    key: str = Field(repr=False)


class AuditEvent(Answer):
    """Something that was done, and with which key (null: the local user or the command line)."""

    id: str
    at: datetime
    key_id: str | None = None
    action: str
    subject: str
    detail: dict[str, Any] = Field(default_factory=dict[str, Any])


class Delivery(Answer):
    """One thing that a study's webhook is told, and how far that is."""

    id: str
    type: str
    state: Literal["waiting", "delivered", "given_up"]
    tries: int
    next_try_at: datetime | None = None
    delivered_at: datetime | None = None
    reason: str | None = None
    created_at: datetime


class Deliveries(Answer):
    """All that a study's webhook was told, or is to be told, newest first."""

    items: list[Delivery]


class WebhookSecret(Answer):
    """What verifies webhooks."""

    secret: str = Field(repr=False)
