"""What `serve` preloads, and the roles that it forks of it: name, function, files.

Importing this imports nearly all that any of them needs. It must start no thread, run no tensor
operation and leave CUDA untouched. See Note [One preloaded process] in `service/README.md`.
"""

import logging
import os
import shutil
import socket
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path

from search.agents.forking.environment import KEPT_FROM_ATTEMPTS
from search.agents.forking.fork_server import serve_attempts
from search.errors import ExecutorError
from search.linux import forget_environment, raise_oom_score
from service.auth.listeners import CannotListen
from service.auth.origins import AddressRefused
from service.observability.logs import configure_logging
from service.processes import tracer
from service.processes.api_process import run_api
from service.processes.children import Child
from service.processes.coordination import AlreadyCoordinating, coordinate_until_told
from service.processes.forking import ForkRequests
from service.processes.launching import launch_until_told
from service.processes.lifeline import hold_on
from service.processes.working import AlreadyWorking, work_for_own_server
from service.settings import Settings

_log = logging.getLogger(__name__)

_REMOVING_SECONDS = 5.0
"""How long an API process may take to end once the server was killed."""
_REFUSALS = (AddressRefused, AlreadyCoordinating, AlreadyWorking, CannotListen, ExecutorError)
"""What says all by itself, without a traceback."""


@dataclass(frozen=True)
class Held:
    """What the supervisor holds for its children."""

    address: socket.socket
    attempts: socket.socket
    """The Unix socket for attempts on this machine."""
    dashboard: socket.socket
    lifeline: int
    """The reading end of a pipe that ends with the supervisor."""
    folder: Path
    """Where the dashboard's socket is, and maybe that of attempts."""


def children(settings: Settings, held: Held, requests: ForkRequests) -> list[Child]:
    """What runs while the server does."""
    api = partial(run_api, settings, listener=held.address, attempts=held.attempts)
    coordinator = partial(_coordinate, settings, held.folder)
    agent = partial(work_for_own_server, settings, launch=requests.launch)
    launcher = partial(launch_until_told, settings)
    listeners = (held.address.fileno(), held.attempts.fileno())

    def role(
        name: str, run: Callable[[], None], *keep: int, visits: socket.socket | None = None
    ) -> Child:
        bound = partial(_run, name, run, settings, lifeline=held.lifeline, parent=os.getpid())
        return Child(name, bound, keep=(held.lifeline, *keep), visits=visits)

    return [
        *(role("api", api, *listeners) for _ in range(settings.apis)),
        role("coordinator", coordinator),
        *([role("agent", agent, requests.descriptor)] if settings.has_own_agent else []),
        *([role("launcher", launcher)] if settings.has_launcher else []),
        role(
            "dashboard",
            partial(_dashboard, settings, held.dashboard),
            held.dashboard.fileno(),
            visits=held.dashboard,
        ),
    ]


def _run(
    role: str, run: Callable[[], None], settings: Settings, *, lifeline: int, parent: int
) -> None:
    """Be one of the children, in a process just forked."""
    configure_logging(role, settings.log_level, settings.log_format)
    hold_on(lifeline, parent=parent, grace_seconds=settings.shutdown_grace_seconds)
    try:
        run()
    except _REFUSALS as error:
        _log.critical("%s", error)
        sys.exit(1)
    except Exception:
        _log.critical("%s fails", role, exc_info=True)
        sys.exit(1)


def _coordinate(settings: Settings, folder: Path) -> None:
    """Coordinate; where the supervisor was killed, take its folder away, for it cannot any more.

    The API could not: uvicorn ends its process by the signal that it got.
    """
    supervisor = os.getppid()
    try:
        coordinate_until_told(settings)
    finally:
        if os.getppid() != supervisor:
            _remove(folder)


def _remove(folder: Path) -> None:
    """Take a folder away into which an API process that is about to end may still write."""
    until = time.monotonic() + _REMOVING_SECONDS
    while folder.exists() and time.monotonic() < until:
        shutil.rmtree(folder, ignore_errors=True)
        time.sleep(0.05)


def _dashboard(settings: Settings, listener: socket.socket) -> None:
    """Nothing else starts by it: only a visit imports it."""
    from service.processes.dashboard import run_dashboard

    # No study needs it, so that it goes before what the supervisor's score protects.
    raise_oom_score(0)
    run_dashboard(settings, listener=listener, idle_seconds=settings.dashboard_idle_seconds)


def _attempts(pipe: Connection) -> None:
    """The fork server of attempts, which get none of our secrets."""
    forget_environment(KEPT_FROM_ATTEMPTS)
    tracer.let_in()
    serve_attempts(pipe)


PROGRAMS: Mapping[str, Callable[[Connection], None]] = {
    "search.agents.forking.fork_server": _attempts
}
"""What a child may have forked, see `ForkRequests`."""
