"""`python -m search.agents.launchers.ray.bridge <descriptor>`: Note [Ray in a process of its own].

The first thing in the pipe is which cluster; then it goes as `search.agents.launchers.ray.messages`
says.
"""

import logging
import os
import queue
import signal
import sys
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from importlib.metadata import version
from multiprocessing.connection import Connection, wait
from typing import Any, final

from search.agents.executor import Exit, Slot
from search.agents.forking.loop import connect as take_pipe
from search.agents.launchers.ray import driver
from search.agents.launchers.ray.messages import (
    REPORTS,
    REQUESTS,
    Away,
    Cancel,
    Cluster,
    Demand,
    Described,
    Ended,
    Hold,
    News,
    Nodes,
    NotStarted,
    Release,
    Report,
    Request,
    Start,
    Started,
)
from search.agents.launchers.ray.node import SLOTS, loopback
from search.agents.launchers.ray.offers import bundle_of, slots_of, why_refused
from search.agents.launchers.ray.reservations import Reservations
from search.errors import ExecutorError
from search.linux import die_with_parent

_log = logging.getLogger(__name__)

_LOOK_SECONDS = 1.0
"""How often the head is asked for its nodes, which is this process's sign of life as well."""
_NEWS_SECONDS = 0.5
"""How long a node agent waits for an attempt to end before it tells what was written meanwhile."""
_SILENT_SECONDS = 60.0
"""How long a node agent may say nothing before its node is given up."""
_DESCRIBE_SECONDS = 300.0
"""The same while it looks at its devices for the first time."""
_CLOSE_SECONDS = 3.0
_LONGEST_PAUSE = 60.0
_MOST_SIGNS = 300
"""How much of what Ray says of a failure becomes the reason of an attempt."""


_TOKEN_HINT = (
    ". A node that wants no token lets nobody with a token run anything: start every node with "
    "RAY_AUTH_MODE=token, or set REFLECTORY_RAY_OPEN=true"
)
"""A cause of node agents that never run: a driver with a token refuses processes without."""


@dataclass
class _Node:
    """One node, and what is known of it."""

    ray: driver.RayNode
    node_agent: driver.NodeAgentHandle
    heard_by: float
    """When the node agent has to have said something, on the monotonic clock."""
    is_described: bool = False
    slots: tuple[Slot, ...] = ()
    starting: set[str] = field(default_factory=set[str])
    running: set[str] = field(default_factory=set[str])


@final
class Bridge:
    """One connection to one cluster, from its begin to its end; one thread does everything."""

    def __init__(self, pipe: Connection, cluster: Cluster) -> None:
        self._pipe = pipe
        self._cluster = cluster
        self._release = version("reflectory")
        self._home = loopback()
        self._nodes: dict[str, _Node] = {}
        self._refused: dict[str, str] = {}
        self._failures: dict[str, tuple[int, float]] = {}
        """Node -> how often its node agent was lost, and when it gets the next."""
        self._reservations = Reservations(self._tell, self._then)
        self._events = queue.SimpleQueue[Callable[[], None]]()
        self._wake_read, self._wake_write = os.pipe()
        os.set_blocking(self._wake_write, False)
        self._look_at = 0.0
        self._handlers: Mapping[type[Request], Callable[..., None]] = {
            Hold: self._hold,
            Release: self._release_slot,
            Start: self._start,
            Cancel: self._cancel,
            Demand: self._demand,
        }

    def run(self) -> None:
        """Work until the pipe's other end closes, or says nothing."""
        try:
            while self._step():
                pass
        finally:
            self._close()

    def _step(self) -> bool:
        ready = wait([self._pipe, self._wake_read], max(0.0, self._look_at - time.monotonic()))
        if self._wake_read in ready:
            os.read(self._wake_read, 4096)
        self._deliver()
        if self._pipe in ready:
            try:
                said = self._pipe.recv_bytes()
            except (EOFError, ConnectionError):
                return False
            if not said:
                # The executor is being closed, and still listens.
                return False
            request = REQUESTS.validate_json(said)
            self._handlers[type(request)](request)
        if time.monotonic() >= self._look_at:
            self._look()
            self._look_at = time.monotonic() + _LOOK_SECONDS
        return True

    def _deliver(self) -> None:
        while True:
            try:
                event = self._events.get_nowait()
            except queue.Empty:
                return
            event()

    def _then(
        self,
        future: "Future[Any]",
        done: Callable[[Any], None],
        failed: Callable[[str], None],
    ) -> None:
        """Have this thread act on an answer of Ray's, which comes in another one."""

        def settle(answered: "Future[Any]") -> None:
            error = answered.exception()
            if error is not None:
                failed(_in_short(error))
            else:
                done(answered.result())

        def wake(answered: "Future[Any]") -> None:
            self._events.put(partial(settle, answered))
            try:
                os.write(self._wake_write, b"1")
            except BlockingIOError:
                # The pipe is full of earlier ones, and wakes in any case.
                return

        future.add_done_callback(wake)

    def _tell(self, report: Report) -> None:
        try:
            self._pipe.send_bytes(REPORTS.dump_json(report))
        except ConnectionError:
            # Nobody listens any more; the next read finds the end of the pipe.
            return

    def _look(self) -> None:
        """See which nodes there are, greet new ones, and tell what they offer."""
        living = {node.node_id: node for node in driver.living_nodes()}
        now = time.monotonic()
        for node_id, node in list(self._nodes.items()):
            if node_id not in living:
                self._lose(node_id, f"lost: Ray's node {node.ray.machine} is gone")
            elif now > node.heard_by:
                node.node_agent.kill()
                self._lose(node_id, f"lost: Ray's node {node.ray.machine} does not answer")
        for gone in self._failures.keys() - living:
            del self._failures[gone]
        machines = {node.machine for node in living.values()}
        self._refused = {name: why for name, why in self._refused.items() if name in machines}
        for node_id, found in living.items():
            if node_id not in self._nodes and self._failures.get(node_id, (0, 0.0))[1] <= now:
                self._greet(found)
        slots = tuple(slot for node in self._nodes.values() for slot in node.slots)
        self._tell(Nodes(slots=slots, refused=self._refused))

    def _greet(self, found: driver.RayNode) -> None:
        node_agent = driver.NodeAgentHandle(found.node_id, self._cluster)
        node = _Node(found, node_agent, heard_by=time.monotonic() + _DESCRIBE_SECONDS)
        self._nodes[found.node_id] = node
        self._ask(node, node_agent.call("describe"), self._described)

    def _ask(self, node: _Node, future: "Future[Any]", done: Callable[[_Node, Any], None]) -> None:
        """Act on a node agent's answer while the node is ours; one that fails loses us the node."""

        def answered(answer: Any) -> None:
            if self._nodes.get(node.ray.node_id) is node:
                done(node, answer)

        def failed(reason: str) -> None:
            if self._nodes.get(node.ray.node_id) is node:
                times, _ = self._failures.get(node.ray.node_id, (0, 0.0))
                pause = min(_LONGEST_PAUSE, 2.0**times)
                self._failures[node.ray.node_id] = (times + 1, time.monotonic() + pause)
                hint = "" if node.is_described or self._cluster.open else _TOKEN_HINT
                self._refused[node.ray.machine] = f"its node agent was lost: {reason}{hint}"
                # One that is out of reach for a moment would else come back, and its attempts too.
                node.node_agent.kill()
                lost = f"lost: the node agent of Ray's node {node.ray.machine}: {reason}"
                self._lose(node.ray.node_id, lost)

        self._then(future, answered, failed)

    def _described(self, node: _Node, answer: bytes) -> None:
        described = Described.model_validate_json(answer)
        node.is_described = True
        machine = node.ray.machine
        why = why_refused(described, self._cluster, release=self._release, home=self._home)
        if why is not None:
            self._refused[machine] = why
            node.heard_by = float("inf")
            return
        slots = slots_of(machine, node.ray.resources, described, self._cluster)
        self._refused.pop(machine, None)
        gpus = int(node.ray.resources.get("GPU", 0))
        if gpus != len(described.gpus):
            self._refused[machine] = (
                f"Ray counts {gpus} GPUs, and torch sees {len(described.gpus)} there: none is used"
            )
        if not slots:
            node.heard_by = float("inf")
            return

        def opened(node: _Node, _answer: Any) -> None:
            node.slots = slots
            self._ask_for_news(node)

        self._ask(node, node.node_agent.call("open", SLOTS.dump_json(slots)), opened)

    def _ask_for_news(self, node: _Node) -> None:
        node.heard_by = time.monotonic() + _SILENT_SECONDS
        self._ask(node, node.node_agent.call("news", _NEWS_SECONDS), self._heard)

    def _heard(self, node: _Node, answer: bytes) -> None:
        news = News.model_validate_json(answer)
        for wrote in news.wrote:
            self._tell(wrote)
        for ended in news.ended:
            attempt_id = ended.exit.attempt_id
            # The answer to `start` may come after the news of its end.
            self._started(node, attempt_id, "")
            node.running.discard(attempt_id)
            self._tell(ended)
        self._failures.pop(node.ray.node_id, None)
        self._ask_for_news(node)

    def _lose(self, node_id: str, reason: str) -> None:
        """Give a node up, with what runs and what is held there."""
        node = self._nodes.pop(node_id)
        self._reservations.lose(node.ray.machine, reason)
        for attempt_id in node.starting:
            self._tell(NotStarted(attempt_id=attempt_id, reason=reason))
        for attempt_id in node.running:
            self._tell(Ended(exit=Exit(attempt_id, None, None, reason)))

    def _node_of(self, machine: str) -> _Node | None:
        nodes = self._nodes.values()
        return next((node for node in nodes if node.ray.machine == machine and node.slots), None)

    def _hold(self, request: Hold) -> None:
        node = self._node_of(request.slot.machine)
        if node is None:
            self._reservations.refuse(request.slot.name, f"no node {request.slot.machine}")
        else:
            self._reservations.hold(
                node.ray.node_id, request.slot, bundle_of(request.slot), node.slots
            )

    def _release_slot(self, request: Release) -> None:
        self._reservations.release(request.slot)

    def _start(self, request: Start) -> None:
        attempt_id = request.ticket.attempt_id
        node = self._node_of(request.slot.machine)
        if node is None:
            reason = f"Ray's node {request.slot.machine} is gone"
            self._tell(NotStarted(attempt_id=attempt_id, reason=reason))
            return
        node.starting.add(attempt_id)
        answer = node.node_agent.call("start", request.model_dump_json().encode())
        self._ask(node, answer, lambda node, why: self._started(node, attempt_id, why))

    def _started(self, node: _Node, attempt_id: str, why_not: str) -> None:
        if attempt_id not in node.starting:
            return
        node.starting.remove(attempt_id)
        if why_not:
            self._tell(NotStarted(attempt_id=attempt_id, reason=why_not))
        else:
            node.running.add(attempt_id)
            self._tell(Started(attempt_id=attempt_id))

    def _cancel(self, request: Cancel) -> None:
        node = self._node_of(request.machine)
        if node is not None:
            answer = node.node_agent.call("cancel", request.model_dump_json().encode())
            self._ask(node, answer, lambda _node, _answer: None)

    def _demand(self, request: Demand) -> None:
        offered = [slot for node in self._nodes.values() for slot in node.slots]
        wanted = {tuple(sorted(bundle_of(slot).items())) for slot in offered} or {(("CPU", 1.0),)}
        # More of what the cluster has most of: parts of GPUs where it has any.
        bundle = dict(max(wanted, key=len))
        driver.demand([bundle] * request.slots)

    def _close(self) -> None:
        """Have the node agents kill what runs, and leave; the kernel ends who does not answer."""
        futures = [node.node_agent.call("close") for node in self._nodes.values() if node.slots]
        deadline = time.monotonic() + _CLOSE_SECONDS
        while time.monotonic() < deadline and not all(future.done() for future in futures):
            time.sleep(0.01)
        if self._cluster.most_slots:
            driver.demand([])
        driver.disconnect()


def _in_short(error: BaseException) -> str:
    """What Ray has to say of a failure, without the node's whole traceback."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [repr(error)]
    first, last = lines[0], lines[-1]
    said = first if first == last else f"{first} ... {last}"
    return said if len(said) <= _MOST_SIGNS else f"{said[:_MOST_SIGNS]}..."


def main() -> None:
    """Connect to the cluster that the pipe names, and serve the pipe."""
    die_with_parent(signal.SIGKILL)
    pipe = take_pipe(int(sys.argv[1]))
    cluster = Cluster.model_validate_json(pipe.recv_bytes())
    try:
        driver.connect(cluster)
        Bridge(pipe, cluster).run()
    except (ExecutorError, *driver.FAULTS) as error:
        _log.exception("the bridge ends")
        pipe.send_bytes(REPORTS.dump_json(Away(reason=str(error))))


if __name__ == "__main__":
    main()
