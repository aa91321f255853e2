"""How the server is, as the API answers."""

from typing import Literal

from pydantic import Field

from models.spec import Spec


class PartState(Spec):
    """One part, and what is wrong with it."""

    name: str
    required: bool = Field(description="whether the server is not ready without it")
    ok: bool
    message: str | None = Field(default=None, description="what is wrong, or else what is to say")


class Alive(Spec):
    """The process answers."""

    status: Literal["alive"] = "alive"
    version: str | None = Field(
        default=None, description="of the server's program; older servers do not tell"
    )


class Ready(Spec):
    """Everything that the server needs is within reach."""

    status: Literal["ready"] = "ready"
    parts: tuple[PartState, ...]
