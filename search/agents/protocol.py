"""What agents and the service say to each other, over `/v1/agents`.

An agent speaks for one machine: it alone knows the service, and shows an API key with the scope
`work`, or comes by the server's own socket. Nothing listens on it: it asks.

| call | body | answer |
|---|---|---|
| POST   /v1/agents | `Join` | `Joined`; joining again is harmless, and is how a process begins |
| POST   /v1/agents/{machine}/poll | `Poll` | `Orders`, at once or when there are some |
| POST   /v1/agents/{machine}/sync | `Sync` and the bytes that it names | `Synced`, at once |
| GET    /v1/agents/{machine}/attempts/{attempt}/artifacts/{role} | | bytes; 404: there are none |
| PUT    /v1/agents/{machine}/attempts/{attempt}/artifacts/{role} | bytes too large for a sync | |
| GET    /v1/agents/{machine}/attempts/{attempt}/datasets/{id} | | the upload that its job names |
| DELETE /v1/agents/{machine}?session= | | nothing; it takes no more, and goes with its last exit |

The body of a sync is four bytes with the length of its JSON, the highest first, the JSON, and the
bytes of those items that have a `size`, in the items' order. Whatever concerns an attempt shows
that one's lease token. See Note [Lost answers] in `search/README.md`.
"""

from collections import Counter
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self, cast

from pydantic import ConfigDict, Field, model_validator
from pydantic.config import JsonDict

from models.spec import Spec
from search.logs import LogFormat
from search.training.jobs import Completion, EpochReport, MeasurementReport, Progress
from storage.endings import AttemptCause

MOST_SLOTS = 4096
"""Slots of one machine, and so attempts on it."""

SYNC_TYPE = "application/octet-stream"
MOST_JSON_BYTES = 1 << 20
"""Of a sync."""
MOST_INLINE_BYTES = 1 << 20
"""Of one item's bytes; larger ones are stored by a call of their own."""
MOST_SYNC_BYTES = 8 << 20
"""Of all bytes of a sync's items."""
MOST_ITEMS = 8192

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
    place: str = Field(
        description="where it runs, by a slot's name; one attempt at a time is there. `cpu-0+3` is "
        "place 3 on slot `cpu-0`, whose attempts are trained together"
    )
    device: str
    threads: int = Field(ge=1)
    memory: int | None = Field(default=None, gt=0, description="bytes that it may take")
    log_format: LogFormat = "text"
    log_fields: Mapping[str, str | int] = Field(default_factory=dict[str, "str | int"])
    tenant: str = Field(description="whose it is: nothing of it may reach another's")
    together: bool = Field(
        default=False,
        description="whether it may be trained in the same calls as others on its slot",
    )
    ahead: bool = Field(
        default=False,
        description="whether it may wait for the attempt that has its place; `BeganItem` tells "
        "when it begins",
    )
    job: dict[str, Any] = Field(description="what there is to do, a `search.training.jobs.Job`")


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


class _Said(Spec):
    """One word about an attempt; all of an attempt come in the order in which they were said."""

    attempt: AttemptId


class BeganItem(_Said):
    """An attempt that was offered ahead has its place."""

    kind: Literal["began"] = "began"
    waited_seconds: float = Field(ge=0, le=10**9, description="since it was offered")


class EpochItem(_Said):
    """An epoch was trained."""

    kind: Literal["epoch"] = "epoch"
    report: EpochReport


class MeasurementItem(_Said):
    """A shape was measured."""

    kind: Literal["measurement"] = "measurement"
    report: MeasurementReport


class ProgressItem(_Said):
    """A download moved on."""

    kind: Literal["progress"] = "progress"
    report: Progress


class ArtifactItem(_Said):
    """Bytes for the attempt's trial, which come with the sync."""

    kind: Literal["artifact"] = "artifact"
    role: Annotated[str, Field(max_length=100)]
    sha256: Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
    size: int = Field(ge=0, le=MOST_INLINE_BYTES)


class LogItem(_Said):
    """The end of what the attempt wrote, which comes with the sync."""

    kind: Literal["log"] = "log"
    size: int = Field(ge=0, le=MOST_INLINE_BYTES)
    cut: int = Field(ge=0, lt=2**63, description="bytes that were written before these")


class EndItem(_Said):
    """The attempt's last word."""

    kind: Literal["end"] = "end"
    completion: Completion


class ExitItem(_Said):
    """The attempt's slot is free: how its process ended, or why it never began."""

    kind: Literal["exit"] = "exit"
    returncode: int | None = Field(default=None, ge=-(2**31), lt=2**31)
    signal: int | None = Field(default=None, ge=0, le=255)
    detail: Annotated[str, Field(max_length=2000)]
    cause: AttemptCause = Field(
        default=AttemptCause.LOST, description="what the attempt did itself, or what befell it"
    )


Item = Annotated[
    BeganItem
    | EpochItem
    | MeasurementItem
    | ProgressItem
    | ArtifactItem
    | LogItem
    | EndItem
    | ExitItem,
    Field(discriminator="kind"),
]


class Beat(Spec):
    """An attempt's process was alive a moment ago."""

    stood_still_seconds: float = Field(default=0.0, ge=0)
    held_seconds: float = Field(default=0.0, ge=0)


class Sync(Spec):
    """What a machine has to say. Saying the same again is harmless."""

    model_config = _example(
        session="0a1b2c3d4e5f6071",
        tokens={"9e107d9d372bb682": "the-lease-token-of-this-attempt"},
        beats={"9e107d9d372bb682": {"stood_still_seconds": 0.0, "held_seconds": 12.5}},
        items=[
            {
                "kind": "exit",
                "attempt": "9e107d9d372bb682",
                "returncode": 0,
                "detail": "exited with code 0",
            }
        ],
    )

    session: SessionId
    tokens: Annotated[
        Mapping[AttemptId, Annotated[str, Field(max_length=200)]],
        Field(max_length=2 * MOST_SLOTS, repr=False),
    ] = {}
    """Of each attempt that is spoken of, but for its exit."""
    beats: Annotated[Mapping[AttemptId, Beat], Field(max_length=2 * MOST_SLOTS)] = {}
    items: Annotated[tuple[Item, ...], Field(max_length=MOST_ITEMS)] = ()


class Refusal(Spec):
    """A word that was not taken; the others were."""

    attempt: AttemptId
    item: int | None = Field(description="its place in the sync's items; null: the beat")
    why: Literal["lease", "invalid", "conflict", "full"] = Field(
        description="`lease`: the attempt is over; `invalid`: it cannot be, and the attempt has "
        "ended by it; `conflict`: it does not fit what was said before; `full`: there is no room "
        "to store it, so say it again later, with all that came after it"
    )
    detail: str


class Synced(Spec):
    """What became of a sync."""

    refused: tuple[Refusal, ...] = ()
    stop: Mapping[AttemptId, str] = Field(
        default_factory=dict[str, str],
        description="attempts that are to stop at the end of their epoch, and why",
    )
    pause: Mapping[AttemptId, str] = Field(
        default_factory=dict[str, str],
        description="attempts that are to store where they are at the end of their epoch and end, "
        "and why: another attempt of the trial may go on from there",
    )
    lease_seconds: float = Field(description="how long leases hold from now on")
