"""The process of a machine's agent: settings made into what it works with."""

import hashlib
import logging
import os
import re
import secrets
import signal
import socket
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

from search.agents.agent import Agent, AgentFolders
from search.agents.agent_client import AgentLink
from search.agents.executors import Slot
from search.agents.forking.containment import contain
from search.agents.forking.server_process import Launch, by_exec
from search.agents.protocol import Join, MachineSlot
from search.agents.slots.slot_processes import IDLE_SECONDS, SlotProcesses
from search.errors import MachineRefused
from search.linux import boot_id
from service.data_dir.locks import hold
from service.data_dir.private_files import tighten
from service.processes.executors import own_api_url, own_slots
from service.settings import Settings

if TYPE_CHECKING:
    from search.agents.forking.unforked import Unforked

_log = logging.getLogger(__name__)

_LOGS_KEPT_SECONDS = 7 * 24 * 3600
"""The service has them; here they are for an operator who looks into a machine's own trouble."""


class AlreadyWorking(Exception):
    """Another worker of this machine works with the same data directory."""


class NoSlots(Exception):
    """The machine would join with nothing to offer."""


def work(
    settings: Settings,
    *,
    server: str,
    key: str | None,
    name: str | None,
    stop: threading.Event,
    announce: Callable[[str, int], None],
    launch: Launch = by_exec,
) -> None:
    """Offer this machine's slots to the server until `stop` is set; what runs stores where it is.

    `announce` is called with the machine's name and how many slots it has, each time that it joins;
    `launch` starts the fork server of its slots.

    Raises:
        AlreadyWorking: the data directory has a worker.
        NoSlots: the settings leave nothing to offer.
        MachineRefused: the server does not take this machine.
    """
    data_dir = settings.data_dir.absolute()
    with ExitStack() as held:
        try:
            held.enter_context(hold(data_dir / "worker.lock"))
        except BlockingIOError as error:
            raise AlreadyWorking(
                f"another worker works with the data directory {data_dir}; "
                "stop that one, or choose another --data-dir"
            ) from error
        tighten(settings)
        slots = own_slots(settings)
        if not slots:
            raise NoSlots(
                "a worker without slots has nothing to do; let --workers be 1 or more, or have GPUs"
            )
        _forget_old_logs(settings.logs_dir)
        for folder in (settings.cache_dir, data_dir / "lanes"):
            folder.mkdir(parents=True, exist_ok=True)
        containment = contain(settings.containment)
        # What an end in order takes away, and kill -9 leaves.
        mark = data_dir / "worker.boot"
        was_killed = mark.exists() and mark.read_text() == boot_id()
        mark.write_text(boot_id())
        held.callback(mark.unlink, missing_ok=True)
        join = _join(_machine_id(data_dir / "worker.id"), slots, name=name, was_killed=was_killed)
        link = held.enter_context(AgentLink(server, join.machine, key=key))
        folders = AgentFolders(
            data=settings.data_sets, cache=settings.cache_dir, locks=data_dir / "lanes"
        )

        def joined(as_name: str) -> None:
            _log.info("joined", extra={"server": server, "machine": as_name, "slots": len(slots)})
            announce(as_name, len(slots))

        unforked = _unforked() if settings.executor == "inline" else None
        processes = partial(
            SlotProcesses,
            logs=settings.logs_dir,
            launch=launch if unforked is None else unforked.launch,
            containment=containment,
            # One thread is all that there is for every place.
            idle_seconds=IDLE_SECONDS if unforked is None else 0.0,
        )
        agent = Agent(link, join, processes, folders=folders)
        run = partial(agent.run, stop, joined=joined)
        if unforked is None:
            run()
        else:
            unforked.run(run)


def work_for_own_server(settings: Settings, *, launch: Launch) -> None:
    """Offer this machine's slots to the server of the same data directory, until SIGTERM."""
    if settings.attempts_socket is None:
        raise ValueError("a server's own agent comes by its socket, and none is set")
    stop = threading.Event()
    for sign in (signal.SIGTERM, signal.SIGINT):
        signal.signal(sign, lambda _sign, _frame: stop.set())
    try:
        work(
            settings,
            server=own_api_url(settings),
            key=None,
            name=None,
            stop=stop,
            announce=lambda _name, _slots: None,
            launch=launch,
        )
    except NoSlots:
        # Another start would find no more; what other machines offer is served.
        _log.warning("this machine has no GPU, and no --workers: only other machines run studies")
        stop.wait()


def _unforked() -> "Unforked":
    # All that an attempt needs comes with it, which an agent of processes does without.
    from search.agents.forking.unforked import Unforked

    return Unforked()


def _join(machine_id: str, slots: Sequence[Slot], *, name: str | None, was_killed: bool) -> Join:
    fields = MachineSlot.model_fields
    return Join(
        machine=machine_id,
        session=secrets.token_hex(8),
        name=_plain(name or socket.gethostname()),
        version=version("reflectory"),
        was_killed=was_killed,
        slots=tuple(MachineSlot(**{name: getattr(one, name) for name in fields}) for one in slots),
    )


def _machine_id(file: Path) -> str:
    """An id that stays with the data directory, and that a copy of it elsewhere does not have."""
    try:
        with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as made:
            made.write(secrets.token_hex(16))
    except FileExistsError:
        pass
    kept = file.read_text().strip()
    return hashlib.sha256(f"{kept} {socket.gethostname()}".encode()).hexdigest()[:16]


def _plain(name: str) -> str:
    """A host's name as a machine may be called."""
    return re.sub(r"[^A-Za-z0-9._-]", "-", name).lstrip("._-")[:63] or "machine"


def _forget_old_logs(logs: Path) -> None:
    since = time.time() - _LOGS_KEPT_SECONDS
    for log in logs.glob("*.log"):
        if log.stat().st_mtime < since:
            log.unlink(missing_ok=True)


__all__ = ["AlreadyWorking", "MachineRefused", "NoSlots", "work"]
