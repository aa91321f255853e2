"""All that is asked of Ray itself, as a driver; blocks for as long as the cluster's head does."""

import logging
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, cast, final

import ray
from ray.autoscaler import sdk
from ray.exceptions import RayError
from ray.util.placement_group import (
    PlacementGroup,
    placement_group,
    remove_placement_group,
)
from ray.util.scheduling_strategies import (
    NodeAffinitySchedulingStrategy,
    PlacementGroupSchedulingStrategy,
)

from search.agents.launchers.ray.messages import Cluster
from search.agents.launchers.ray.node import NodeAgent, granted_gpu
from search.errors import ExecutorError

FAULTS = (RayError, ConnectionError, RuntimeError, ValueError, OSError)
"""What Ray raises when it cannot connect, or cannot do any more what it was asked for."""

_CALLS_AT_ONCE = 8
"""How many calls a node agent answers at once: one waits for news, others start and cancel."""

_NODE_ID = "ray.io/node-id"

# Ray's own types say nothing of options, methods of actors and futures.
_ray: Any = ray


@dataclass(frozen=True)
class RayNode:
    """A node that the cluster's head holds for alive."""

    node_id: str
    hostname: str
    resources: Mapping[str, float]

    @property
    def machine(self) -> str:
        """A name for people that tells nodes apart, those of one host too."""
        return f"{self.hostname}-{self.node_id[:8]}"


@final
class NodeAgentHandle:
    """A node agent on its node. Calls return at once; each future is answered or fails."""

    def __init__(self, node_id: str, cluster: Cluster) -> None:
        self._actor = (
            _ray.remote(NodeAgent)
            .options(
                num_cpus=0,
                max_restarts=0,
                max_concurrency=_CALLS_AT_ONCE,
                scheduling_strategy=NodeAffinitySchedulingStrategy(node_id, soft=False),
            )
            .remote(cluster.model_dump_json().encode())
        )

    def call(self, method: str, *arguments: Any) -> "Future[Any]":
        """Call one of `NodeAgent`'s methods."""
        return getattr(self._actor, method).remote(*arguments).future()

    def kill(self) -> None:
        """End it by force, and with it all that it started."""
        _ray.kill(self._actor)


@final
class Group:
    """What a slot stands for, asked of one node; see Note [Reservations]."""

    def __init__(self, node_id: str, bundle: Mapping[str, float]) -> None:
        self._gpu_share = bundle.get("GPU", 0.0)
        self._group: PlacementGroup = placement_group(
            [dict(bundle)],
            strategy="STRICT_PACK",
            bundle_label_selector=[{_NODE_ID: node_id}],
        )

    def granted(self) -> "Future[Any]":
        """Be told when Ray has granted it."""
        return cast(Any, self._group).ready().future()

    def gpu(self) -> "Future[Any]":
        """Ask which GPU it is part of, once it is granted."""
        where = PlacementGroupSchedulingStrategy(self._group, placement_group_bundle_index=0)
        task = _ray.remote(granted_gpu).options(
            num_cpus=0, num_gpus=self._gpu_share, max_retries=0, scheduling_strategy=where
        )
        return task.remote().future()

    def remove(self) -> None:
        """Give it back, granted or not."""
        remove_placement_group(self._group)


def connect(cluster: Cluster) -> None:
    """Become a driver of the cluster that this machine is a node of.

    Raises:
        ExecutorError: it is not there, or does not take us.
    """
    try:
        _ray.init(
            address=cluster.address,
            namespace="reflectory",
            log_to_driver=False,
            configure_logging=False,
            logging_level=logging.WARNING,
        )
    except FAULTS as error:
        raise ExecutorError(
            f"no connection to Ray at {cluster.address!r}: {_what_failed(error)}"
        ) from error


def _what_failed(error: BaseException) -> str:
    """The line that says it: Ray wraps errors in others, whole tracebacks included."""
    said: list[str] = []
    cause: BaseException | None = error
    while cause is not None:
        said += [line.strip() for line in str(cause).splitlines() if line.strip()]
        cause = cause.__cause__
    named = [line for line in said if "Error: " in line]
    return (named or said or [repr(error)])[-1]


def disconnect() -> None:
    """End this driver, and with it its node agents and groups."""
    _ray.shutdown()


def living_nodes() -> Sequence[RayNode]:
    """Ask the head for the nodes that it holds for alive."""
    return [
        RayNode(node["NodeID"], node["NodeManagerHostname"], node["Resources"])
        for node in _ray.nodes()
        if node["Alive"]
    ]


def demand(bundles: Sequence[Mapping[str, float]]) -> None:
    """Tell the autoscaler to make room for these, in all; nothing takes the wish back."""
    cast(Any, sdk).request_resources(bundles=[dict(bundle) for bundle in bundles])
