"""What runs on the nodes of a Ray cluster: the node agent of a node's attempts."""

import os
import subprocess
import sys
import tempfile
import threading
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import final

from pydantic import TypeAdapter
from ray import get_runtime_context

from search.agents.executor import AttemptTicket, Slot
from search.agents.executors.local import LocalExecutor
from search.agents.forking.containment import contain
from search.agents.launchers.ray.messages import (
    DEVICES,
    Cancel,
    Cluster,
    Described,
    Ended,
    News,
    Start,
    Wrote,
)
from search.errors import ExecutorError
from search.linux import boot_id
from search.measuring.measurement_lock import lock_folder

SLOTS: TypeAdapter[tuple[Slot, ...]] = TypeAdapter(tuple[Slot, ...])

_ASK_SECONDS = 180.0
_LARGEST_PIECE = 1 << 20
"""So much of an attempt's log is told at once, in bytes."""


@final
class NodeAgent:
    """Starts, ends and watches the attempts of one node, see Note [Node agents].

    Bytes go in and out, JSON as `search.agents.launchers.ray.messages` has it, so that no object of
    ours is pickled between two machines.
    """

    def __init__(self, cluster: bytes) -> None:
        self._cluster = Cluster.model_validate_json(cluster)
        # Ray has read its token; what this process starts has no use for it.
        os.environ.pop("RAY_AUTH_TOKEN", None)
        os.environ.pop("RAY_AUTH_TOKEN_PATH", None)
        self._executor: LocalExecutor | None = None
        self._told: dict[str, int] = {}
        """Attempt -> how many bytes of its log were told."""
        self._lock = threading.Lock()
        # Ray started this process, with whatever umask it has itself.
        os.umask(0o077)
        scratch = self._cluster.scratch
        for folder in (scratch, scratch / "cache", scratch / "lanes"):
            folder.mkdir(parents=True, exist_ok=True)
        # Of this node agent alone: another coordinator may use the node as well.
        self._logs = Path(tempfile.mkdtemp(prefix="logs-", dir=scratch))

    def describe(self) -> bytes:
        """Say what this node is."""
        # Ray hides all GPUs from an actor that has no part of any.
        environment = {k: v for k, v in os.environ.items() if k != "CUDA_VISIBLE_DEVICES"}
        cpu, gpus = DEVICES.validate_json(_devices(environment))
        described = Described(
            release=version("reflectory"),
            loopback=loopback(),
            cpu=cpu,
            gpus=gpus,
        )
        return described.model_dump_json().encode()

    def open(self, slots: bytes) -> None:
        """Get ready to start attempts on these slots."""
        containment = contain(self._cluster.containment)
        self._executor = LocalExecutor(
            SLOTS.validate_json(slots), logs=self._logs, containment=containment
        )

    def start(self, request: bytes) -> str:
        """Run an attempt; what hindered it is returned, and an empty string where nothing did."""
        start = Start.model_validate_json(request)
        attempt_id = start.ticket.attempt_id
        with self._lock:
            self._told[attempt_id] = 0
        try:
            self._open().start(self._here(start.ticket), start.slot)
        except ExecutorError as error:
            return str(error)
        return ""

    def cancel(self, request: bytes) -> None:
        """End an attempt, by force after the grace time."""
        cancel = Cancel.model_validate_json(request)
        self._open().cancel(cancel.attempt_id, cancel.grace_seconds)

    def news(self, wait_seconds: float) -> bytes:
        """Wait for an attempt to end, for no longer than this, and tell what happened since."""
        ended = self._open().poll(wait_seconds)
        over = {exited.attempt_id for exited in ended}
        with self._lock:
            underway = list(self._told)
        wrote = [piece for name in underway for piece in self._written(name, whole=name in over)]
        news = News(wrote=tuple(wrote), ended=tuple(Ended(exit=exited) for exited in ended))
        with self._lock:
            for name in over & self._told.keys():
                del self._told[name]
                self._open().log_path(name).unlink(missing_ok=True)
        return news.model_dump_json().encode()

    def close(self) -> None:
        """Kill what runs; `news` tells of it."""
        self._open().close()

    def _open(self) -> LocalExecutor:
        if self._executor is None:
            raise ExecutorError("the node agent was not told its slots")
        return self._executor

    def _here(self, ticket: AttemptTicket) -> AttemptTicket:
        """The ticket with this node's folders; the user's own data are where they are at home."""
        scratch = self._cluster.scratch
        locks = lock_folder(scratch / "lanes", ticket.device)
        return replace(ticket, cache=scratch / "cache", lock_folder=locks)

    def _written(self, attempt_id: str, *, whole: bool) -> list[Wrote]:
        """What an attempt wrote since it was last looked at."""
        pieces: list[Wrote] = []
        try:
            log = self._open().log_path(attempt_id).open("rb")
        except FileNotFoundError:
            return pieces
        with log:
            log.seek(self._told[attempt_id])
            while piece := log.read(_LARGEST_PIECE):
                self._told[attempt_id] += len(piece)
                pieces.append(Wrote(attempt_id=attempt_id, text=piece.decode("latin-1")))
                if not whole:
                    break
        return pieces


def granted_gpu() -> str:
    """Run within a granted placement group: the uuid of the GPU that Ray gave it part of."""
    _, gpus = DEVICES.validate_json(_devices(dict(os.environ)))
    if len(gpus) != 1:
        shown = os.environ.get("CUDA_VISIBLE_DEVICES")
        node = get_runtime_context().get_node_id()
        raise ExecutorError(
            f"Ray gave part of GPU {shown!r} on node {node}, and torch sees {len(gpus)} there"
        )
    return gpus[0][0]


def loopback() -> str:
    """Name what `localhost` means to this process: the booted machine and its network namespace."""
    return f"{boot_id()} {os.readlink('/proc/self/ns/net')}"


def _devices(environment: dict[str, str]) -> bytes:
    try:
        asked = subprocess.run(
            [sys.executable, "-P", "-m", "search.agents.launchers.ray.describe"],
            env=environment,
            check=True,
            capture_output=True,
            timeout=_ASK_SECONDS,
        )
    except subprocess.CalledProcessError as error:
        said = error.stderr.decode(errors="replace").strip().splitlines()
        raise ExecutorError(f"a node's devices: {said[-1] if said else 'no message'}") from error
    return asked.stdout
