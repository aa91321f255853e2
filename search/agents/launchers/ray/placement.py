"""Where agents are placed, and when they are given back: by what waits and what is free."""

import math
import re
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import final

from search.agents.launchers.ray.messages import Cluster, Demand, Place

_IDLE_SECONDS = 60.0
"""How long nothing runs on an agent before it is given back."""
_JOIN_SECONDS = 180.0
"""How long an agent may take until it has joined: Ray's part, imports and a look for GPUs."""
_LONGEST_PAUSE = 60.0
_LEAST_SLOT_MEMORY = 64 << 20


@dataclass(frozen=True)
class Node:
    """A node that the cluster's head holds for alive."""

    node_id: str
    hostname: str
    total: Mapping[str, float]
    """Its resources, by Ray's names."""
    free: Mapping[str, float]
    """Those that nobody has."""

    @property
    def name(self) -> str:
        """A name for people that tells nodes apart, those of one host too."""
        return f"{self.hostname}-{self.node_id[:8]}"

    @property
    def cores(self) -> int:
        """How many of its CPUs nobody has."""
        return int(self.free.get("CPU", 0))

    @property
    def gpus(self) -> int:
        """How many of its GPUs nobody has a part of."""
        return int(self.free.get("GPU", 0))

    @property
    def slot_memory(self) -> int | None:
        """A core's part of the memory that Ray counts there."""
        cores = int(self.total.get("CPU", 0))
        memory = int(self.total.get("memory", 0) / cores) if cores else 0
        return memory if memory >= _LEAST_SLOT_MEMORY else None


@dataclass(frozen=True)
class Orders:
    """What is to be done with agents."""

    place: Sequence[Place]
    give_back: Sequence[str]
    """Names of agents that are to leave."""
    wish: int
    """How many slots the autoscaler should make room for, in all."""


@dataclass
class _Agent:
    place: Place
    since: float
    """When it was placed, and from then on when something ran there last."""
    has_joined: bool = False
    leaves: bool = False


@final
class Placement:
    """Which agents are placed.

    An agent takes of its node what is wished for and free, so that a node has few of them. There is
    one at most on a node that has not joined yet: what Ray counts as free there is known again
    when it has.

    Args:
        clock: gives seconds and never goes back.
    """

    def __init__(self, cluster: Cluster, clock: Callable[[], float] = time.monotonic) -> None:
        self._cluster = cluster
        self._clock = clock
        self._agents: dict[str, _Agent] = {}
        self._failures: dict[str, tuple[int, float]] = {}
        """Node -> how often its agent failed in a row, and when it gets the next."""

    def places(self) -> Sequence[Place]:
        """Return what is placed."""
        return [agent.place for agent in self._agents.values()]

    def ended(self, name: str, *, failed: bool) -> None:
        """Note that an agent is gone; after one that failed, its node gets the next one later."""
        agent = self._agents.pop(name)
        if failed or not agent.has_joined:
            times, _ = self._failures.get(agent.place.node_id, (0, 0.0))
            pause = min(_LONGEST_PAUSE, 2.0**times)
            self._failures[agent.place.node_id] = (times + 1, self._clock() + pause)

    def update(self, nodes: Sequence[Node], demand: Demand) -> Orders:
        """Say what to do now."""
        give_back = self._look_at(demand)
        places: list[Place] = []
        cpu, cuda, either = self._needed(demand)
        settling = {
            one.place.node_id
            for one in self._agents.values()
            if not one.has_joined or one.place.name in give_back
        }
        # Those with the most to give first: so there are few agents.
        for node in sorted(nodes, key=lambda node: (-node.gpus, -node.cores)):
            due = self._failures.get(node.node_id, (0, 0.0))[1] <= self._clock()
            if node.node_id in settling or not due or cpu + cuda + either <= 0:
                continue
            place = self._place_on(node, cpu=cpu, cuda=cuda, either=either)
            if place is None:
                continue
            places.append(place)
            self._agents[place.name] = _Agent(place, self._clock())
            gpu_slots = place.slots - place.cpus
            either -= max(0, gpu_slots - cuda) + max(0, place.cpus - cpu)
            cuda, cpu = max(0, cuda - gpu_slots), max(0, cpu - place.cpus)
            either = max(0, either)
        placed = sum(one.place.slots for one in self._agents.values() if not one.leaves)
        wish = min(self._cluster.most_slots, placed + cpu + cuda + either)
        return Orders(places, give_back, wish)

    def _look_at(self, demand: Demand) -> Sequence[str]:
        """Note who joined and who has work; those that have had none for long are to leave."""
        now, give_back = self._clock(), list[str]()
        joined, busy = frozenset(demand.joined), frozenset(demand.busy)
        for name, agent in self._agents.items():
            if name in joined and not agent.has_joined:
                agent.has_joined, agent.since = True, now
                self._failures.pop(agent.place.node_id, None)
            if name in busy:
                agent.since = now
            patience = _IDLE_SECONDS if agent.has_joined else _JOIN_SECONDS
            if not agent.leaves and now - agent.since >= patience:
                agent.leaves = True
                give_back.append(name)
        return give_back

    def _needed(self, demand: Demand) -> tuple[int, int, int]:
        """How many slots are missing: on CPUs, on GPUs, on either."""
        coming = [
            one.place for one in self._agents.values() if not one.has_joined and not one.leaves
        ]
        cpu = demand.free.get("cpu", 0) + sum(place.cpus for place in coming)
        cuda = demand.free.get("cuda", 0) + sum(place.slots - place.cpus for place in coming)
        cpu_left = cpu - demand.waiting.get("cpu", 0)
        cuda_left = cuda - demand.waiting.get("cuda", 0)
        either = demand.waiting.get("any", 0) - max(0, cpu_left) - max(0, cuda_left)
        return max(0, -cpu_left), max(0, -cuda_left), max(0, either)

    def _place_on(self, node: Node, *, cpu: int, cuda: int, either: int) -> Place | None:
        """What an agent takes of a node; null where the node has nothing that is wished for."""
        parts = self._cluster.slots_per_gpu
        gpus = min(node.gpus, math.ceil((cuda + either) / parts))
        gpu_slots = gpus * parts
        beside = min(node.cores, gpu_slots)
        wished = cpu + max(0, either - max(0, gpu_slots - cuda))
        cpus = min(node.cores - beside, wished, self._cpus_left(node))
        if not gpus and not cpus:
            return None
        return Place(
            name=_name(node),
            node_id=node.node_id,
            node=node.name,
            cpus=cpus,
            gpus=gpus,
            cores=beside + cpus,
            slots=gpu_slots + cpus,
            slot_memory=node.slot_memory,
        )

    def _cpus_left(self, node: Node) -> int:
        """How many CPU slots may still be made there."""
        if self._cluster.cpu_slots is None:
            return node.cores
        there = (one.place for one in self._agents.values() if one.place.node_id == node.node_id)
        return max(0, self._cluster.cpu_slots - sum(place.cpus for place in there))


def _name(node: Node) -> str:
    """What a machine may be called, and no other one is."""
    host = re.sub(r"[^A-Za-z0-9._-]", "-", node.hostname)
    return f"ray-{secrets.token_hex(4)}-{host}"[:63]
