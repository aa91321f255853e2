"""Messages among the executor, the bridge and the node agents: JSON, framed by its length."""

from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, TypeAdapter

from models.spec import Spec
from search.agents.executor import AttemptTicket, Exit, Slot
from search.agents.forking.containment import ContainmentName
from search.agents.forking.frames import NotStarted

LOCK_RESOURCE = "reflectory_lane"
"""What a node is started with that lends its devices for measuring: `{"reflectory_lane": 1}`."""


class Cluster(Spec):
    """Which cluster is used, and how."""

    address: str = "auto"
    """What `ray.init` takes: `auto` or `host:port`; this machine is a node of it."""
    scratch: Path = Path("/tmp/reflectory")
    """Folder on every node for data, measurement locks and logs underway."""
    cpu_slots: int | None = Field(default=None, ge=0)
    """At most so many attempts on the CPUs of a node."""
    slots_per_gpu: int = Field(default=1, ge=1)
    open: bool = False
    """Whether a cluster is used that takes anybody's commands."""
    most_slots: int = Field(default=0, ge=0)
    """Up to how many slots the autoscaler is asked for; 0: never asked."""
    url: str | None = None
    """Where attempts will reach the API, if that is known."""
    containment: ContainmentName = "auto"
    """What keeps attempts within their slots' memory on every node."""


class Hold(Spec):
    """To the bridge: ask Ray for what a slot stands for, and keep it."""

    kind: Literal["hold"] = "hold"
    slot: Slot


class Release(Spec):
    """To the bridge: give it back, granted or not."""

    kind: Literal["release"] = "release"
    slot: str


class Start(Spec):
    """To the bridge, and from there to a node agent: run an attempt."""

    kind: Literal["start"] = "start"
    ticket: AttemptTicket
    slot: Slot


class Cancel(Spec):
    """To the bridge, and from there to a node agent: SIGTERM now, SIGKILL after the grace time."""

    kind: Literal["cancel"] = "cancel"
    attempt_id: str
    machine: str
    grace_seconds: float = Field(ge=0)


class Demand(Spec):
    """To the bridge: how many slots there should be, for Ray's autoscaler to know; 0: no wish."""

    kind: Literal["demand"] = "demand"
    slots: int = Field(ge=0)


class Nodes(Spec):
    """From the bridge, about once a second: the cluster answers, and this is what it has."""

    kind: Literal["nodes"] = "nodes"
    slots: tuple[Slot, ...]
    refused: dict[str, str]
    """Machine -> why nothing is started there."""


class Held(Spec):
    """From the bridge: Ray granted a slot."""

    kind: Literal["held"] = "held"
    slot: str
    asked: bool = True
    """False where Ray gave part of another GPU than the one that was asked for."""


class NotHeld(Spec):
    """From the bridge: what was asked for this slot is another's, or its node is gone."""

    kind: Literal["not_held"] = "not_held"
    slot: str
    reason: str


class Started(Spec):
    """The attempt runs."""

    kind: Literal["started"] = "started"
    attempt_id: str


class Wrote(Spec):
    """An attempt wrote to its log."""

    kind: Literal["wrote"] = "wrote"
    attempt_id: str
    text: str
    """The bytes, read as Latin-1: every byte is a sign, so that none is lost on the way."""


class Ended(Spec):
    """An attempt ended, and nothing more will be told of it."""

    kind: Literal["ended"] = "ended"
    exit: Exit


class Away(Spec):
    """From the bridge, as its last word: why it does not work with the cluster."""

    kind: Literal["away"] = "away"
    reason: str


Request = Hold | Release | Start | Cancel | Demand
Report = Nodes | Held | NotHeld | Started | NotStarted | Wrote | Ended | Away

REQUESTS: TypeAdapter[Request] = TypeAdapter(Annotated[Request, Field(discriminator="kind")])
REPORTS: TypeAdapter[Report] = TypeAdapter(Annotated[Report, Field(discriminator="kind")])


DEVICES: TypeAdapter[tuple[str, tuple[tuple[str, str], ...]]] = TypeAdapter(
    tuple[str, tuple[tuple[str, str], ...]]
)
"""A machine's processor model, and (uuid, name) of each GPU that is visible there."""


class Described(Spec):
    """What a node told of itself."""

    release: str
    """Which Reflectory is installed there."""
    loopback: str
    """The same for two processes exactly when `localhost` is the same place for them."""
    cpu: str
    """Its processor's model."""
    gpus: tuple[tuple[str, str], ...]
    """(uuid, name) of the GPUs that its driver shows."""


class News(Spec):
    """What a node agent has to tell since it was last asked."""

    wrote: tuple[Wrote, ...]
    ended: tuple[Ended, ...]
