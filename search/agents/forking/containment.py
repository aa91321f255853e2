"""What keeps an attempt within its slot's memory, and tells whose doing it was when it is killed.

See Note [Control groups] in `search/README.md`.
"""

import logging
import os
import resource
from collections.abc import Mapping, Set
from contextlib import suppress
from pathlib import Path
from typing import Literal, Protocol, final

from models.spec import Spec
from search.agents.executor import AttemptTicket
from search.errors import ExecutorError
from search.linux import oom_score_may_change

_log = logging.getLogger(__name__)

ContainmentName = Literal["auto", "cgroup", "rlimit", "none"]

_ROOT = Path("/sys/fs/cgroup")
_LEAF = "reflectory"
_ATTEMPT = "attempt-"
_DELEGATED = ("user.delegate", "trusted.delegate")
_MOST_MOVES = 20
"""How often the processes of a group are moved, of which new ones may start meanwhile."""


class Bounds(Protocol):
    """What holds one attempt."""

    def enter(self) -> None:
        """Bind the calling process, just forked, and all that it starts."""
        ...

    def kills(self) -> "Kills | None":
        """What the kernel did for want of memory, once the attempt has ended; null: not known."""
        ...

    def close(self) -> None:
        """Give back what is not in use any more; harmless when called again."""
        ...


class Kills(Spec):
    """What a control group tells of its end."""

    out_of_memory: bool
    at_limit: int | None
    """The limit at which the kernel ended it, in bytes; null when it was not the group's own."""


class Containment(Spec):
    """How attempts are held on this machine."""

    kind: Literal["cgroup", "rlimit", "none"]
    group: Path | None = None
    """The control group that is ours, for `cgroup`."""

    def bounds(self, ticket: AttemptTicket) -> Bounds:
        """What an attempt is to be held by; made before its process is.

        Raises:
            OSError: there can be no control group for it.
        """
        if self.kind == "cgroup" and self.group is not None:
            name = f"{_ATTEMPT}{os.getpid()}-{ticket.attempt_id}"
            return _Group(self.group / name, limit=ticket.memory)
        if self.kind == "rlimit" and ticket.device == "cpu" and ticket.memory is not None:
            return _DataLimit(ticket.memory)
        return _Nothing()


def contain(
    wanted: ContainmentName, *, root: Path = _ROOT, membership: str | None = None
) -> Containment:
    """Get ready to hold attempts as wished, and log what came of it.

    Args:
        wanted: `auto` takes control groups where they are handed over to us, and limits elsewhere.
        root: where control groups are mounted.
        membership: our group's path as `/proc/self/cgroup` has it; null: ask the kernel.

    Raises:
        ExecutorError: control groups are wanted, and are not to be had.
    """
    if wanted in ("rlimit", "none"):
        chosen = Containment(kind=wanted)
    else:
        try:
            group = _take_group(root, _membership() if membership is None else membership)
            chosen = Containment(kind="cgroup", group=group)
        except (OSError, _NotOurs) as error:
            if wanted == "cgroup":
                raise ExecutorError(f"attempts get no control groups: {error}") from error
            _log.info("attempts get no control groups", extra={"reason": str(error)})
            chosen = Containment(kind="rlimit")
    if not oom_score_may_change():
        _log.warning("the kernel cannot be told to kill attempts first when memory runs out")
    _log.info("attempts are contained", extra={"by": chosen.kind, "group": str(chosen.group or "")})
    return chosen


class _NotOurs(Exception):
    """The control group cannot be used; says why."""


@final
class _Nothing:
    def enter(self) -> None:
        """Nothing holds it."""

    def kills(self) -> None:
        """Nobody tells."""

    def close(self) -> None:
        """There is nothing to give back."""


@final
class _DataLimit:
    """A limit on what an attempt takes beside what it has from the server that forked it."""

    def __init__(self, limit: int) -> None:
        self._limit = limit

    def enter(self) -> None:
        """Set the limit, for good."""
        most = _data_bytes() + self._limit
        _, hard = resource.getrlimit(resource.RLIMIT_DATA)
        if hard != resource.RLIM_INFINITY:
            most = min(most, hard)
        resource.setrlimit(resource.RLIMIT_DATA, (most, most))

    def kills(self) -> None:
        """The kernel refuses memory and kills nobody."""

    def close(self) -> None:
        """It ends with the process."""


@final
class _Group:
    """A control group of one attempt."""

    def __init__(self, folder: Path, *, limit: int | None) -> None:
        self._folder = folder
        self._limit = limit
        folder.mkdir()
        try:
            # Whatever it has started goes with it.
            _write(folder / "memory.oom.group", "1")
            if limit is not None:
                _write(folder / "memory.max", str(limit))
                with suppress(FileNotFoundError):  # A kernel without swap has no such file.
                    _write(folder / "memory.swap.max", "0")
        except OSError:
            self.close()
            raise

    def enter(self) -> None:
        """Join the group; memory that is shared with the server stays the server's."""
        _write(self._folder / "cgroup.procs", "0")

    def kills(self) -> Kills:
        events = _events(self._folder / "memory.events")
        killed = events.get("oom_kill", 0) > 0
        own = killed and events.get("oom", 0) > 0
        return Kills(out_of_memory=killed, at_limit=self._limit if own else None)

    def close(self) -> None:
        """Remove the group; raises `OSError` while a process of it comes to its end."""
        with suppress(FileNotFoundError):
            self._folder.rmdir()


def _take_group(root: Path, membership: str) -> Path:
    """Make our own group one below which attempts can have theirs, and name it."""
    group = root / membership.lstrip("/")
    if group.name == _LEAF:
        group = group.parent
    if not (group / "memory.max").exists():
        raise _NotOurs(f"{group} has no memory controller of version 2")
    if group != root and not _is_delegated(group):
        raise _NotOurs(f"{group} is not handed over to this service (systemd's Delegate=yes)")
    needed = (group, group / "cgroup.procs", group / "cgroup.subtree_control")
    for path in needed:
        if not os.access(path, os.W_OK):
            raise _NotOurs(f"{path} cannot be written")
    if "memory" not in (group / "cgroup.controllers").read_text().split():
        raise _NotOurs(f"{group} has no memory controller to give on")
    _sweep(group)
    if "memory" in (group / "cgroup.subtree_control").read_text().split():
        return group
    leaf = group / _LEAF
    leaf.mkdir(exist_ok=True)
    _move_all(group, leaf)
    _write(group / "cgroup.subtree_control", "+memory")
    return group


def _move_all(group: Path, leaf: Path) -> None:
    for _ in range(_MOST_MOVES):
        there = {int(pid) for pid in (group / "cgroup.procs").read_text().split()}
        if not there:
            return
        strangers = there - _family()
        if strangers:
            raise _NotOurs(f"{group} holds other processes than ours: {sorted(strangers)}")
        for pid in there:
            with suppress(ProcessLookupError):
                _write(leaf / "cgroup.procs", str(pid))
    raise _NotOurs(f"{group} is never without processes")


def _family() -> Set[int]:
    """Our ancestors, and all that the topmost of them started that runs the same program."""
    parents = _parents()
    program = os.readlink("/proc/self/exe")
    line = [os.getpid()]
    while line[-1] in parents and parents[line[-1]] > 0:
        line.append(parents[line[-1]])
    top = line[0]
    for pid in line:
        with suppress(OSError):
            if os.readlink(f"/proc/{pid}/exe") == program:
                top = pid
    family = {top}
    while found := {pid for pid, parent in parents.items() if parent in family} - family:
        family |= found
    return family | set(line)


def _parents() -> Mapping[int, int]:
    found: dict[int, int] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            # The name in parentheses may hold anything, blanks and parentheses too.
            state = (folder / "stat").read_text().rpartition(")")[2].split()
            found[int(folder.name)] = int(state[1])
    return found


def _sweep(group: Path) -> None:
    """Remove the groups of attempts whose server is gone; one with processes stays."""
    for left in group.glob(f"{_ATTEMPT}*-*"):
        server = left.name.removeprefix(_ATTEMPT).partition("-")[0]
        if not Path(f"/proc/{server}").exists():
            with suppress(OSError):
                left.rmdir()


def _is_delegated(group: Path) -> bool:
    for name in _DELEGATED:
        with suppress(OSError):
            if os.getxattr(group, name) == b"1":
                return True
    return False


def _membership() -> str:
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        hierarchy, _, path = line.split(":", 2)
        if hierarchy == "0":
            return path
    raise _NotOurs("this machine has no control groups of version 2")


def _events(file: Path) -> Mapping[str, int]:
    pairs = (line.partition(" ") for line in file.read_text().splitlines())
    return {name: int(count) for name, _, count in pairs}


def _data_bytes() -> int:
    """The calling process's data segment, as `RLIMIT_DATA` counts it."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmData:"):
            return int(line.split()[1]) * 1024
    return 0


def _write(file: Path, text: str) -> None:
    # Never made: a file that is missing is one that this kernel does not have.
    descriptor = os.open(file, os.O_WRONLY)
    try:
        os.write(descriptor, text.encode())
    finally:
        os.close(descriptor)
