"""What the launcher and its driver say to each other: JSON, framed by its length."""

from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from pydantic import Field

from models.spec import Spec

Kind = Literal["cpu", "cuda"]
Wish = Literal["any", "cpu", "cuda"]


class Cluster(Spec):
    """Which cluster is used, and how; the first thing that a driver gets."""

    address: str = "auto"
    """What `ray.init` takes: `auto` or `host:port`; this machine is a node of it."""
    scratch: Path = Path("/tmp/reflectory")
    """Folder on every node for data, measurement locks and the agents' own files."""
    cpu_slots: int | None = Field(default=None, ge=0)
    """At most so many slots on the CPUs of a node."""
    slots_per_gpu: int = Field(default=1, ge=1)
    open: bool = False
    """Whether a cluster is used that takes anybody's commands."""
    most_slots: int = Field(default=0, ge=0)
    """Up to how many slots the autoscaler is asked for; 0: never asked."""
    url: str
    """Where agents reach the API."""
    command: tuple[str, ...]
    """Python's arguments by which an agent is started."""
    environment: Mapping[str, str] = Field(default_factory=dict[str, str])
    """What an agent gets in its environment beside what its place says; no secrets."""


class Demand(Spec):
    """How much work waits, and what the agents do that are there."""

    waiting: Mapping[Wish, int] = Field(default_factory=dict[Wish, int])
    """Attempts that could begin now, by the kind of device that they wish for."""
    free: Mapping[Kind, int] = Field(default_factory=dict[Kind, int])
    """Slots on which nothing runs, of all machines that joined."""
    joined: tuple[str, ...] = ()
    """Names of the machines that joined."""
    busy: tuple[str, ...] = ()
    """Names of those on which something runs."""
    key: str | None = Field(default=None, repr=False)
    """The API key of agents; null: the server asks for none."""
    stop: bool = False
    """Have all agents leave, and end."""


class State(Spec):
    """From the driver, about once a second: the cluster answers, and this is what is placed."""

    agents: Mapping[str, int] = Field(default_factory=dict[str, int])
    """Name of each agent that is placed, and its slots."""
    refused: Mapping[str, str] = Field(default_factory=dict[str, str])
    """Node -> why its agent ended."""
    wish: int = 0
    """How many slots Ray's autoscaler is asked for."""


class Place(Spec):
    """Where an agent is placed, and with what."""

    name: str
    """What the machine is called; of this agent alone."""
    node_id: str
    node: str
    """The node's name for people."""
    cpus: int
    """Slots on the CPU."""
    gpus: int
    cores: int
    """What of the node's CPUs it takes, those beside its GPUs' slots too."""
    slots: int
    slot_memory: int | None = None
    """Bytes that an attempt may take; null: what the agent finds."""
