"""What worker machines and the service say to each other, as JSON over `/v1/workers`.

A machine shows an API key with the scope `work`. Nothing listens on it: it asks.

| call | body | answer |
|---|---|---|
| POST   /v1/workers | `Join` | `Joined`; joining again is harmless, and is how a process begins |
| POST   /v1/workers/{machine}/poll | `Poll` | `Orders`, at once or when there are some |
| POST   /v1/workers/{machine}/exits | `Exits` | nothing; what was told before is passed over |
| DELETE /v1/workers/{machine}?session= | | nothing; it takes no more, and goes with its last exit |

See Note [Lost answers] in `search/README.md`.
"""

from collections import Counter
from collections.abc import Mapping
from typing import Annotated, Self, cast

from pydantic import ConfigDict, Field, model_validator
from pydantic.config import JsonDict

from models.spec import Spec
from search.logs import LogFormat
from storage.endings import AttemptCause

MOST_SLOTS = 4096
"""Slots of one machine, and so attempts on it."""

MachineId = Annotated[str, Field(pattern=r"^[0-9a-f]{16,64}$")]
SessionId = Annotated[str, Field(pattern=r"^[0-9a-f]{16,64}$")]
AttemptId = Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,128}$")]
MachineName = Annotated[
    str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$", description="tells machines apart")
]
_Word = Annotated[str, Field(min_length=1, max_length=200)]


def _example(**example: object) -> ConfigDict:
    return ConfigDict(json_schema_extra={"examples": [cast(JsonDict, example)]})


class MachineSlot(Spec):
    """A place on the machine where one attempt at a time runs."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]{1,100}$")]
    device: Annotated[str, Field(pattern=r"^(cpu|cuda:[A-Za-z0-9._-]{1,100})$")]
    model: _Word
    share: float = Field(gt=0, le=1)
    memory: int | None = Field(
        default=None, gt=0, lt=2**63, description="bytes that an attempt may take; null: unknown"
    )
    device_memory: int | None = Field(
        default=None, gt=0, lt=2**63, description="bytes of the GPU's own memory, likewise"
    )
    compiles: bool = Field(default=True, description="whether the machine has a C compiler")


class Join(Spec):
    """A machine offers its slots."""

    model_config = _example(
        machine="4f1d2c3b5a697887",
        session="0a1b2c3d4e5f6071",
        name="ada",
        version="0.1.0",
        slots=[{"name": "gpu-0-0", "device": "cuda:GPU-7", "model": "NVIDIA H100", "share": 1.0}],
    )

    machine: MachineId = Field(description="the same whenever this machine comes back")
    session: SessionId = Field(description="of this process alone")
    name: MachineName
    version: _Word = Field(description="of the program; that of the service is needed")
    was_killed: bool = Field(
        default=False,
        description="whether the process before it ended without an order to, on a machine that "
        "went on: what it ran may have killed it",
    )
    slots: Annotated[tuple[MachineSlot, ...], Field(min_length=1, max_length=MOST_SLOTS)]

    @model_validator(mode="after")
    def _each_once(self) -> Self:
        names = Counter(slot.name for slot in self.slots)
        name, count = names.most_common(1)[0]
        if count > 1:
            raise ValueError(f"slot {name!r} is there {count} times; each has a name of its own")
        return self


class Joined(Spec):
    """The machine is one of the site's."""

    name: str = Field(
        description="as it was asked for, or with a part of the id where that was taken"
    )
    lease_seconds: float = Field(description="a machine that is silent for as long gets no more")


class Poll(Spec):
    """What runs on a machine, and it is answered with what should."""

    model_config = _example(
        session="0a1b2c3d4e5f6071",
        number=7,
        running=["9e107d9d372bb682"],
        ending={"9e107d9d372bb682": 2.0},
        wait_seconds=10.0,
    )

    session: SessionId
    number: int = Field(ge=1, lt=2**31, description="grows by each poll of the process")
    running: Annotated[tuple[AttemptId, ...], Field(max_length=2 * MOST_SLOTS)] = ()
    ending: Mapping[AttemptId, float] = Field(
        default_factory=dict[str, float],
        max_length=2 * MOST_SLOTS,
        description="the orders to end that were heard, with the grace seconds of each",
    )
    wait_seconds: float = Field(
        default=10.0, ge=0, le=30, description="how long the answer may wait for orders"
    )


class Offer(Spec):
    """An attempt to start."""

    attempt: AttemptId
    token: str = Field(repr=False, description="its lease token; one that came before is void")
    lease_seconds: float = Field(gt=0)
    device: str
    threads: int = Field(ge=1)
    memory: int | None = Field(default=None, gt=0, description="bytes that it may take")
    log_format: LogFormat = "text"
    log_fields: Mapping[str, str | int] = Field(default_factory=dict[str, "str | int"])


class End(Spec):
    """An attempt to end: SIGTERM now, and SIGKILL after the grace time."""

    attempt: AttemptId
    grace_seconds: float = Field(ge=0)


class Orders(Spec):
    """What a machine is to do."""

    start: tuple[Offer, ...] = ()
    end: tuple[End, ...] = ()

    @property
    def any(self) -> bool:
        """Whether there is anything to do."""
        return bool(self.start or self.end)


class AttemptExit(Spec):
    """How an attempt's process ended, or why it never began."""

    attempt: AttemptId
    returncode: int | None = Field(default=None, ge=-(2**31), lt=2**31)
    signal: int | None = Field(default=None, ge=0, le=255)
    detail: Annotated[str, Field(max_length=2000)]
    cause: AttemptCause = Field(
        default=AttemptCause.LOST, description="what the attempt did itself, or what befell it"
    )


class Exits(Spec):
    """Attempts that ended."""

    model_config = _example(
        session="0a1b2c3d4e5f6071",
        exits=[
            {
                "attempt": "9e107d9d372bb682",
                "returncode": 0,
                "signal": None,
                "detail": "exited with code 0",
            }
        ],
    )

    session: SessionId
    exits: Annotated[tuple[AttemptExit, ...], Field(min_length=1, max_length=2 * MOST_SLOTS)]
