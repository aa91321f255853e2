"""A Ray cluster as an executor: its slots, and attempts that a bridge has started on its nodes."""

import importlib.util
import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence, Set
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, final

from sqlalchemy.orm import Session

from search.agents.executor import (
    AttemptTicket,
    Executor,
    Exit,
    Slot,
    check_device,
    log_file,
)
from search.agents.executors.exits import Exits
from search.agents.launchers.ray.demand import DemandRule
from search.agents.launchers.ray.messages import (
    LOCK_RESOURCE,
    Cancel,
    Cluster,
    Demand,
    Ended,
    Held,
    Hold,
    Nodes,
    NotHeld,
    NotStarted,
    Release,
    Report,
    Request,
    Start,
    Started,
    Wrote,
)
from search.agents.launchers.ray.offers import is_loopback
from search.agents.launchers.ray.session import BridgeProcess
from search.agents.log_sender import LogSender
from search.errors import ExecutorError

_log = logging.getLogger(__name__)

_FIRST_ASK_SECONDS = 0.5
"""How long a slot that was just asked for is waited for: Ray grants in 4 ms what is free."""
_IDLE_SECONDS = 30.0
"""How long a slot is kept on which nothing runs, for the next attempt. A measuring slot is given
back sooner."""
_FIRST_PAUSE = 1.0
_LONGEST_PAUSE = 30.0
"""How long after a lost connection another one is tried, doubling from the first to the longest."""
_CLOSE_SECONDS = 6.0
_LAST_LOGS_SECONDS = 2.0


@dataclass
class _Reservation:
    """A slot that Ray was asked for."""

    slot: Slot
    held: Future[None] = field(default_factory=Future[None])
    used_at: float = field(default_factory=time.monotonic)

    @property
    def is_held(self) -> bool:
        return self.held.done() and self.held.exception() is None


@final
class RayExecutor:
    """Starts attempts on the nodes of a Ray cluster, which it never starts or ends itself.

    Without a cluster it has no slots and tries to connect again for as long as it is open.

    Args:
        cluster: which one, and how it is used.
        logs: folder for the attempts' logs, brought from their nodes, and the bridge's own.
        start_seconds: longest wait for an attempt's process.
    """

    def __init__(self, cluster: Cluster, *, logs: Path, start_seconds: float = 120.0) -> None:
        if importlib.util.find_spec("ray") is None:
            raise ExecutorError("Ray is not installed here: pip install 'reflectory[ray]'")
        self._cluster = cluster
        self._logs = logs.absolute()
        self._logs.mkdir(parents=True, exist_ok=True)
        self._start_seconds = start_seconds
        self._demand = DemandRule(cluster.most_slots)
        self._exits = Exits()
        # An API on this machine reads the files themselves.
        is_here = cluster.url is None or is_loopback(cluster.url)
        self._sender = None if cluster.url is None or is_here else LogSender(cluster.url)
        self._lock = threading.Lock()
        self._slots: tuple[Slot, ...] = ()
        self._refused: dict[str, str] = {}
        self._reservations: dict[str, _Reservation] = {}
        self._starting: dict[str, Future[None]] = {}
        self._running: dict[str, Slot] = {}
        """What was started or is about to be."""
        self._bridge: BridgeProcess | None = None
        self._connected_once = threading.Event()
        self._closing = threading.Event()
        self._reactions: Mapping[type[Report], Callable[..., None]] = {
            Nodes: self._on_nodes,
            Held: self._on_held,
            NotHeld: self._on_not_held,
            Started: self._on_started,
            NotStarted: self._on_not_started,
            Wrote: self._on_wrote,
            Ended: self._on_ended,
        }
        self._thread = threading.Thread(target=self._connect, name="ray", daemon=True)
        self._thread.start()

    def wait_for_slots(self, timeout_seconds: float) -> bool:
        """Wait until a first node has offered slots; False when none did in time."""
        return self._connected_once.wait(timeout_seconds)

    def capacity(self) -> Sequence[Slot]:
        """Return every slot of every node that may be used; none while there is no cluster."""
        with self._lock:
            slots = self._slots
            self._give_back_idle()
            wanted = self._demand.update(slots=len(slots), busy=len(self._running))
        if wanted is not None:
            self._send(Demand(slots=wanted))
        return slots

    def reserve(self, attempt_id: str, slot: Slot) -> bool:  # noqa: ARG002
        """Have Ray grant the slot, or keep it where it did; False while another has it."""
        with self._lock:
            reservation, is_new = self._ask_for(slot)
        if reservation is None:
            return False
        if is_new:
            with suppress(ExecutorError, TimeoutError):
                reservation.held.result(_FIRST_ASK_SECONDS)
        return reservation.is_held

    def start(self, ticket: AttemptTicket, slot: Slot) -> None:
        """Have the node's node agent fork the attempt, and return when its process exists.

        Raises:
            ExecutorError: it could not be started, it runs already, or its device is not here.
        """
        deadline = time.monotonic() + self._start_seconds
        attempt_id = ticket.attempt_id
        started = Future[None]()
        with self._lock:
            if self._closing.is_set():
                raise ExecutorError("the executor is closed and starts nothing any more")
            check_device(ticket, slot, self._slots)
            if attempt_id in self._running:
                raise ExecutorError(f"attempt {attempt_id} runs already")
            reservation, _ = self._ask_for(slot)
            if reservation is None:
                raise ExecutorError(f"slot {slot.name!r} is not there any more")
            self._running[attempt_id] = slot
            self._starting[attempt_id] = started
        if self._sender is not None:
            log = self.log_path(attempt_id)
            log.touch(mode=0o600)
            self._sender.watch(attempt_id, token=ticket.token, path=log)
        try:
            reservation.held.result(max(0.0, deadline - time.monotonic()))
            self._send(Start(ticket=ticket, slot=slot))
            started.result(max(0.0, deadline - time.monotonic()))
        except TimeoutError as error:
            # Should it have begun after all, it is ended before anybody hears of it.
            self.cancel(attempt_id, 0.0)
            self._forget(attempt_id)
            raise ExecutorError(
                f"attempt {attempt_id} was not started on {slot.name!r} "
                f"in {self._start_seconds:g} s"
            ) from error
        except ExecutorError:
            self._forget(attempt_id)
            raise

    def cancel(self, attempt_id: str, grace_seconds: float) -> None:
        """Have its node send SIGTERM to the attempt's group, and SIGKILL after the grace time."""
        with self._lock:
            slot = self._running.get(attempt_id)
        if slot is not None:
            self._send(
                Cancel(attempt_id=attempt_id, machine=slot.machine, grace_seconds=grace_seconds)
            )

    def book(self, session: Session, ticket: AttemptTicket, slot: Slot) -> bool:  # noqa: ARG002
        """What `reserve` has kept needs no row."""
        return True

    def adopt(self, attempt_id: str) -> bool:  # noqa: ARG002
        """Nothing outlives its coordinator."""
        return False

    def keeps(self, attempt_id: str) -> bool:  # noqa: ARG002
        """Nothing does."""
        return False

    def unheard(self) -> Set[str]:
        """None: what runs there is heard, or is not alive."""
        return frozenset[str]()

    def poll(self, timeout_seconds: float) -> Sequence[Exit]:
        """Return what ended since the last call; waits up to the timeout for a first one."""
        return self._exits.poll(timeout_seconds)

    def log_path(self, attempt_id: str) -> Path:
        """Name the file with what the attempt wrote, as far as is known here: `log_file`."""
        return log_file(self._logs, attempt_id)

    def close(self) -> None:
        """Have everything that runs killed, and leave the cluster."""
        with self._lock:
            self._closing.set()
            bridge = self._bridge
        if bridge is not None:
            bridge.close()
        self._thread.join(_CLOSE_SECONDS)
        if self._thread.is_alive() and bridge is not None:
            bridge.kill()
            self._thread.join()
        if self._sender is not None:
            self._sender.close(timeout_seconds=_LAST_LOGS_SECONDS)

    def _connect(self) -> None:
        """Hold a connection for as long as the executor is open, one bridge after another."""
        pause = _FIRST_PAUSE
        while not self._closing.is_set():
            errors = self._logs / "ray-bridge.stderr.log"
            try:
                bridge = BridgeProcess(self._cluster, errors=errors, on_report=self._on_report)
            except OSError as error:
                reason = f"the bridge to Ray could not be started: {error}"
            else:
                with self._lock:
                    self._bridge = bridge
                    closing = self._closing.is_set()
                if closing:
                    bridge.close()
                reason = bridge.serve()
            with self._lock:
                pause = _FIRST_PAUSE if self._slots else pause
            self._lose_all(reason)
            if not self._closing.is_set():
                _log.error("no Ray cluster", extra={"reason": reason, "again_in_seconds": pause})
            self._closing.wait(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)

    def _lose_all(self, reason: str) -> None:
        """Settle everything once a connection is over."""
        lost = ExecutorError(reason)
        with self._lock:
            self._bridge = None
            self._slots, self._refused = (), {}
            reservations, self._reservations = self._reservations, {}
            starting, self._starting = self._starting, {}
            ended = [name for name in self._running if name not in starting]
            self._running = {name: self._running[name] for name in starting}
        for future in [
            *(reservation.held for reservation in reservations.values()),
            *starting.values(),
        ]:
            if not future.done():
                future.set_exception(lost)
        why = "killed: the executor is closed" if self._closing.is_set() else f"lost: {reason}"
        for attempt_id in ended:
            self._tell(Exit(attempt_id, None, None, why))

    def _ask_for(self, slot: Slot) -> tuple[_Reservation | None, bool]:
        """A slot's reservation, and whether Ray is asked now; none where its node is gone."""
        machines = {offered.machine for offered in self._slots}
        if self._bridge is None or slot.machine not in machines:
            return None, False
        reservation = self._reservations.get(slot.name)
        if reservation is not None:
            reservation.used_at = time.monotonic()
            return reservation, False
        reservation = self._reservations[slot.name] = _Reservation(slot)
        self._send(Hold(slot=slot))
        return reservation, True

    def _give_back_idle(self) -> None:
        now = time.monotonic()
        busy = {slot.name for slot in self._running.values()}
        for name, reservation in list(self._reservations.items()):
            keep = _IDLE_SECONDS if reservation.slot.share else _FIRST_ASK_SECONDS
            if name not in busy and now - reservation.used_at > keep:
                del self._reservations[name]
                self._send(Release(slot=name))

    def _send(self, request: Request) -> None:
        bridge = self._bridge
        if bridge is not None:
            bridge.send(request)

    def _forget(self, attempt_id: str) -> None:
        with self._lock:
            self._starting.pop(attempt_id, None)
            self._running.pop(attempt_id, None)
        if self._sender is not None:
            self._sender.ended(attempt_id)

    def _on_report(self, report: Report) -> None:
        self._reactions[type(report)](report)

    def _on_nodes(self, report: Nodes) -> None:
        with self._lock:
            before, self._slots = {slot.name for slot in self._slots}, report.slots
            refused = dict(report.refused.items() - self._refused.items())
            self._refused = report.refused
        for machine, reason in refused.items():
            _log.error("a Ray node is not used", extra={"machine": machine, "reason": reason})
        for machine in sorted({slot.machine for slot in report.slots if slot.name not in before}):
            slots = [slot for slot in report.slots if slot.machine == machine]
            _log.info("a Ray node has slots", extra={"names": [slot.name for slot in slots]})
            if not slots[0].measures:
                _log.warning(
                    "a Ray node measures nothing: it was started without the resource",
                    extra={"machine": machine, "resource": LOCK_RESOURCE},
                )
        if report.slots:
            self._connected_once.set()

    def _on_held(self, report: Held) -> None:
        with self._lock:
            reservation = self._reservations.get(report.slot)
            if reservation is None and not report.asked:
                slots = (slot for slot in self._slots if slot.name == report.slot)
                reservation = next((_Reservation(slot) for slot in slots), None)
                if reservation is not None:
                    self._reservations[report.slot] = reservation
        if reservation is not None and not reservation.held.done():
            reservation.held.set_result(None)

    def _on_not_held(self, report: NotHeld) -> None:
        with self._lock:
            reservation = self._reservations.pop(report.slot, None)
        if reservation is not None and not reservation.held.done():
            reservation.held.set_exception(ExecutorError(f"Ray: {report.reason}"))

    def _on_started(self, report: Started) -> None:
        with self._lock:
            started = self._starting.pop(report.attempt_id, None)
        if started is not None:
            started.set_result(None)

    def _on_not_started(self, report: NotStarted) -> None:
        error = ExecutorError(f"attempt {report.attempt_id} was not started: {report.reason}")
        with self._lock:
            started = self._starting.pop(report.attempt_id, None)
        if started is not None:
            started.set_exception(error)

    def _on_wrote(self, report: Wrote) -> None:
        try:
            with self.log_path(report.attempt_id).open("ab") as log:
                log.write(report.text.encode("latin-1"))
        except OSError as error:
            _log.warning(
                "a log is incomplete", extra={"attempt_id": report.attempt_id, "reason": error}
            )

    def _on_ended(self, report: Ended) -> None:
        with self._lock:
            slot = self._running.pop(report.exit.attempt_id, None)
            reservation = None if slot is None else self._reservations.get(slot.name)
            if reservation is not None:
                reservation.used_at = time.monotonic()
        if slot is not None:
            self._tell(report.exit)

    def _tell(self, ended: Exit) -> None:
        if self._sender is not None:
            self._sender.ended(ended.attempt_id)
        self._exits.put(ended)


if TYPE_CHECKING:
    _conforms: type[Executor] = RayExecutor
