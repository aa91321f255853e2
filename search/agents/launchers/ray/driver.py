"""`python -m search.agents.launchers.ray.driver <descriptor>`: places agents as the pipe says.

The only process of the service that imports Ray, and so the only one that stands still when the
cluster's head does: see Note [Ray in a process of its own].
"""

import logging
import signal
import sys
import time
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any, cast, final

import ray
from ray._private import state as ray_state
from ray.autoscaler import sdk
from ray.exceptions import RayError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from search.agents.forking.loop import connect as take_pipe
from search.agents.launchers.ray.hosting import AgentHost, loopback
from search.agents.launchers.ray.messages import Cluster, Demand, Place, State
from search.agents.launchers.ray.placement import Node, Placement
from search.linux import die_with_parent

_log = logging.getLogger(__name__)

_FAULTS = (RayError, ConnectionError, RuntimeError, ValueError, OSError)
"""What Ray raises when it cannot connect, or cannot do any more what it was asked for."""

_LEAVE_SECONDS = 8.0
"""How long agents may take to leave when the service stops; then Ray ends them."""
_FORCE_SECONDS = 90.0
"""How long one may take that is given back while the service goes on."""
_MOST_SIGNS = 300
"""How much of what Ray says of a failure is passed on."""
_TOKEN_HINT = (
    ". A node that wants no token lets nobody with a token run anything: start every node with "
    "RAY_AUTH_MODE=token, or set REFLECTORY_RAY_OPEN=true"
)
"""A cause of agents that never run: a driver with a token refuses processes without."""

# Ray's own types say nothing of options, methods of actors and futures.
_ray: Any = ray


@dataclass
class _Placed:
    place: Place
    actor: Any
    ended: "Future[Any]"
    leaves_by: float = float("inf")
    """When it is ended by force, on the monotonic clock."""


@final
class Driver:
    """One connection to one cluster, from its begin to its end."""

    def __init__(self, pipe: Connection, cluster: Cluster) -> None:
        self._pipe = pipe
        self._cluster = cluster
        self._placement = Placement(cluster)
        self._placed: dict[str, _Placed] = {}
        self._refused: dict[str, str] = {}
        self._wish = 0
        self._home = loopback()

    def run(self) -> None:
        """Work until the pipe says to stop, or its other end closes."""
        while True:
            self._tell()
            try:
                demand = Demand.model_validate_json(self._pipe.recv_bytes())
            except (EOFError, ConnectionError):
                return
            if demand.stop:
                self._leave()
                return
            self._step(demand)

    def _step(self, demand: Demand) -> None:
        self._look_for_ends()
        nodes = _living_nodes()
        known = {node.name for node in nodes}
        self._refused = {node: why for node, why in self._refused.items() if node in known}
        orders = self._placement.update(nodes, demand)
        for name in orders.give_back:
            self._give_back(self._placed[name])
        for place in orders.place:
            self._place(place, demand.key)
        for placed in self._placed.values():
            if time.monotonic() > placed.leaves_by:
                _ray.kill(placed.actor)
        if orders.wish != self._wish:
            self._wish = orders.wish
            _ask_autoscaler(orders.wish, self._bundle(nodes))

    def _place(self, place: Place, key: str | None) -> None:
        actor = (
            _ray.remote(AgentHost)
            .options(
                num_cpus=place.cores,
                num_gpus=place.gpus,
                max_restarts=0,
                # `stop` comes while `run` runs.
                max_concurrency=2,
                scheduling_strategy=NodeAffinitySchedulingStrategy(place.node_id, soft=False),
            )
            .remote(
                self._cluster.model_dump_json().encode(),
                place.model_dump_json().encode(),
                key,
                self._home,
            )
        )
        self._placed[place.name] = _Placed(place, actor, actor.run.remote().future())

    def _give_back(self, placed: _Placed) -> None:
        placed.actor.stop.remote()
        placed.leaves_by = time.monotonic() + _FORCE_SECONDS

    def _look_for_ends(self) -> None:
        for name, placed in list(self._placed.items()):
            if not placed.ended.done():
                continue
            del self._placed[name]
            error = placed.ended.exception()
            why = placed.ended.result() if error is None else self._in_short(error)
            self._placement.ended(name, failed=bool(why))
            if why:
                self._refused[placed.place.node] = why
            else:
                self._refused.pop(placed.place.node, None)
            _ray.kill(placed.actor)

    def _in_short(self, error: BaseException) -> str:
        """What Ray has to say of a failure, without the node's whole traceback."""
        lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [repr(error)]
        first, last = lines[0], lines[-1]
        said = first if first == last else f"{first} ... {last}"
        hint = "" if self._cluster.open else _TOKEN_HINT
        return f"its agent was lost: {said[:_MOST_SIGNS]}{hint}"

    def _bundle(self, nodes: Sequence[Node]) -> dict[str, float]:
        """What a slot is in Ray's resources: parts of GPUs where the cluster has any."""
        if any(node.total.get("GPU", 0) for node in nodes):
            return {"CPU": 1.0, "GPU": 1.0 / self._cluster.slots_per_gpu}
        return {"CPU": 1.0}

    def _tell(self) -> None:
        state = State(
            agents={place.name: place.slots for place in self._placement.places()},
            refused=self._refused,
            wish=self._wish,
        )
        self._pipe.send_bytes(state.model_dump_json().encode())

    def _leave(self) -> None:
        """Have all agents store what runs, and leave; Ray ends those that do not in time."""
        for placed in self._placed.values():
            self._give_back(placed)
        deadline = time.monotonic() + _LEAVE_SECONDS
        while time.monotonic() < deadline and not all(
            placed.ended.done() for placed in self._placed.values()
        ):
            time.sleep(0.02)
        if self._wish:
            _ask_autoscaler(0, {})


def _living_nodes() -> list[Node]:
    """Ask the head for the nodes that it holds for alive."""
    free: dict[str, dict[str, float]] = cast(Any, ray_state).available_resources_per_node()
    return [
        Node(
            node["NodeID"],
            node["NodeManagerHostname"],
            total=node["Resources"],
            free=free.get(node["NodeID"], {}),
        )
        for node in _ray.nodes()
        if node["Alive"]
    ]


def _ask_autoscaler(slots: int, bundle: dict[str, float]) -> None:
    """Tell the autoscaler to make room for so many, in all; nothing takes the wish back."""
    cast(Any, sdk).request_resources(bundles=[bundle] * slots)


def _connect(cluster: Cluster) -> None:
    _ray.init(
        address=cluster.address,
        namespace="reflectory",
        log_to_driver=False,
        configure_logging=False,
        logging_level=logging.WARNING,
    )


def main() -> None:
    """Connect to the cluster that the pipe names, and serve the pipe."""
    die_with_parent(signal.SIGKILL)
    pipe = take_pipe(int(sys.argv[1]))
    cluster = Cluster.model_validate_json(pipe.recv_bytes())
    try:
        _connect(cluster)
        Driver(pipe, cluster).run()
    except _FAULTS as error:
        _log.exception("the driver ends")
        sys.exit(f"no connection to Ray at {cluster.address!r}: {_what_failed(error)}")
    _ray.shutdown()


def _what_failed(error: BaseException) -> str:
    """The line that says it: Ray wraps errors in others, whole tracebacks included."""
    said: list[str] = []
    cause: BaseException | None = error
    while cause is not None:
        said += [line.strip() for line in str(cause).splitlines() if line.strip()]
        cause = cause.__cause__
    named = [line for line in said if "Error: " in line]
    return (named or said or [repr(error)])[-1]


if __name__ == "__main__":
    main()
