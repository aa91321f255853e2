"""What the server needs within reach, looked at part by part."""

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from service.api.dashboard.own_process import running_mark
from service.api.health.schemas import PartState
from service.api.resources import Resources
from service.data_dir.locks import is_held
from service.data_dir.machine_name import coordinator_name
from service.settings import Settings
from storage.errors import DatabaseUnavailable, SchemaMismatch, StorageError
from storage.fleet.coordinators import Coordinators
from storage.fleet.fleet_counts import FleetCounts

_UNIX_SOCKETS = Path("/proc/net/unix")
_LISTENS = "00010000"
"""The kernel's flags of a socket that is listened on."""


class _Wrong(Exception):
    """A part is out of reach; the message says which way."""


@dataclass(frozen=True)
class _Part:
    name: str
    check: Callable[[Resources], str | None]
    """What is to say about it while nothing is wrong."""
    required: bool = True
    applies: Callable[[Settings], bool] = lambda _settings: True


def readiness(held: Resources) -> tuple[PartState, ...]:
    """Every part as it is now."""
    return tuple(_state(part, held) for part in _PARTS if part.applies(held.settings))


def _state(part: _Part, held: Resources) -> PartState:
    try:
        said = part.check(held)
    except (StorageError, OSError, _Wrong) as error:
        return PartState(name=part.name, required=part.required, ok=False, message=str(error))
    return PartState(name=part.name, required=part.required, ok=True, message=said)


def _check_database(held: Resources) -> None:
    try:
        held.database.check()
    except SchemaMismatch:
        # It answers: what it answers with is another part.
        return


def _check_tables(held: Resources) -> None:
    held.database.check()


def _check_store(held: Resources) -> None:
    held.store.check_room()
    if not held.store.is_new():
        return
    # One that had files is a disk that came off before the start, or another bucket.
    count = 0
    with suppress(DatabaseUnavailable), held.database.read() as session:
        count, _ = FleetCounts(session).artifacts()
    if count > 0:
        raise _Wrong(f"{held.store} holds nothing, and the database names {count} files in it")


def _check_coordinator(held: Resources) -> None:
    allowed = held.settings.coordinator_silence_seconds
    try:
        age = time.time() - held.settings.coordinator_alive.stat().st_mtime
    except FileNotFoundError:
        age = None
    if age is not None and age <= allowed:
        return
    # Of the coordinator of this very folder the file speaks, which a start takes away; a row stays
    # for a while when one is killed.
    with held.database.read() as session:
        living = Coordinators(session).alive(datetime.now(UTC), within_seconds=allowed)
    ours = coordinator_name(held.settings.data_dir)
    if any(coordinator.owner != ours for coordinator in living):
        return
    if age is None:
        raise _Wrong("no coordinator has worked on this data directory yet, and no other one works")
    raise _Wrong(f"the coordinator was last heard {age:.0f} s ago; allowed are {allowed:.0f} s")


def _check_agent(held: Resources) -> None:
    allowed = held.settings.coordinator_silence_seconds
    with held.database.read() as session:
        living = Coordinators(session).alive(datetime.now(UTC), within_seconds=allowed)
    owner = coordinator_name(held.settings.data_dir)
    ours = [coordinator for coordinator in living if coordinator.owner == owner]
    # One that is silent is the fault of another part.
    if ours and not ours[0].slots:
        raise _Wrong("the coordinator knows no slot: this machine's own agent has not joined yet")


def _check_dashboard(held: Resources) -> str:
    """Nothing connects to it here: a connection is a visit, and starts its process."""
    path = held.settings.dashboard_socket
    if path is None:
        raise _Wrong("none is run beside this server (REFLECTORY_DASHBOARD_SOCKET)")
    if is_held(running_mark(path)):
        return "its process runs"
    if _is_listened_on(path):
        return "its process starts at the next visit"
    raise _Wrong("its process does not run, and nothing would start it")


def _is_listened_on(path: Path) -> bool:
    """Whether a process of this machine, or of our container, listens on a Unix socket."""
    sockets = _UNIX_SOCKETS.read_text().splitlines()[1:]
    fields = (line.split(maxsplit=7) for line in sockets)
    return any(entry[3:] and entry[3] == _LISTENS and entry[-1] == str(path) for entry in fields)


_PARTS = (
    _Part("database", _check_database),
    _Part("tables", _check_tables),
    _Part("store", _check_store),
    _Part("coordinator", _check_coordinator),
    _Part("agent", _check_agent, applies=lambda settings: settings.has_own_agent),
    # Studies need none.
    _Part("dashboard", _check_dashboard, required=False),
)
