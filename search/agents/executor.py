"""The port between the coordinator and whatever runs attempts: four values and one Protocol."""

import re
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from sqlalchemy.orm import Session

from search.errors import ExecutorError
from search.logs import LogFormat
from storage.endings import AttemptCause
from storage.records import LOCAL

PLACE_SIGN = "+"
"""Stands between a slot's name and the number of a place on it; no slot has it in its name."""

_PLAIN_NAME = re.compile(r"[A-Za-z0-9_-]{1,128}")


def check_attempt_id(attempt_id: str) -> None:
    """Refuse an id that is more than a plain name, since it becomes a file name.

    Raises:
        ExecutorError: it has other signs than letters, digits, `_` and `-`, or is too long.
    """
    if not _PLAIN_NAME.fullmatch(attempt_id):
        raise ExecutorError(
            f"attempt id {attempt_id!r} is not 1 to 128 letters, digits, '_' or '-'"
        )


def log_file(folder: Path, attempt_id: str) -> Path:
    """The file in a folder of logs that an attempt's has.

    Raises:
        ExecutorError: such an id could name a file elsewhere.
    """
    check_attempt_id(attempt_id)
    return folder / f"{attempt_id}.log"


@dataclass(frozen=True)
class Slot:
    """A place where one attempt at a time can run, or several that are trained together."""

    name: str
    """Unique within the executor: `cpu-0`, `gpu-0-1`."""
    device: str
    """`cpu`, or `cuda:<uuid>` as `nvidia-smi -L` prints it."""
    model: str
    """The device as a person would name it: `NVIDIA H200`. Throughput compares within one model."""
    share: float
    """How much of the device it stands for: cores on a CPU, a fraction of a GPU."""
    machine: str = ""
    """Where it is, by a name that tells machines apart; empty for the coordinator's own."""
    measures: bool = True
    """Whether throughput may be measured on its device."""
    memory: int | None = None
    """Bytes of its machine's memory that an attempt on it may take; null: unknown."""
    device_memory: int | None = None
    """Bytes of a GPU's own memory that an attempt on it may take; null: unknown, or a CPU."""
    compiles: bool = True
    """Whether its machine has a C compiler, as far as that is known."""
    number: int = 0
    """Which of the places of a stack on it, see Note [Stacks] in `search/README.md`."""


def slot_of(place: str) -> str:
    """The slot of a place, which is that, or one of several on it: `cpu-0` of `cpu-0+3`."""
    return place.partition(PLACE_SIGN)[0]


@dataclass(frozen=True)
class AttemptTicket:
    """All that an attempt is given beside its job; what else it needs it asks its agent."""

    attempt_id: str
    lease_seconds: float
    device: str
    """The slot's device."""
    data: Path | None
    """Folder with the user's data files, where there is one."""
    cache: Path
    """Folder for downloaded and decoded data."""
    lock_folder: Path
    """Folder with the lock files of the device's measurement lock."""
    threads: int
    """How many threads torch may use."""
    memory: int | None = None
    """Bytes that the attempt may take, those of its slot; null: unknown."""
    tenant: str = LOCAL
    """Whose attempt it is: nothing that it leaves behind may reach another's."""
    together: bool = False
    """Whether it may be trained in the same calls as others on its slot."""
    log_format: LogFormat = "text"
    log_fields: Mapping[str, str | int] = field(default_factory=dict[str, "str | int"])
    """What each line of the attempt's log has in common, where it is JSON."""

    def __post_init__(self) -> None:
        """Refuse an id that could not stand in a file name."""
        check_attempt_id(self.attempt_id)


def check_device(ticket: AttemptTicket, slot: Slot, slots: Sequence[Slot]) -> None:
    """Refuse a ticket for another device than its slot's, or for one that no slot has.

    Raises:
        ExecutorError: names the devices that there are.
    """
    devices = sorted({ours.device for ours in slots})
    if ticket.device != slot.device or slot.device not in devices:
        raise ExecutorError(
            f"slot {slot.name!r} has device {slot.device!r} and the ticket {ticket.device!r}: "
            f"both must name the same one of {', '.join(devices) or 'no devices'}"
        )


@dataclass(frozen=True)
class Exit:
    """How an attempt's process ended: by itself (`returncode`) or by a signal."""

    attempt_id: str
    returncode: int | None
    signal: int | None
    detail: str
    """One sentence for a log or a person."""
    cause: AttemptCause = AttemptCause.LOST
    """Whether the attempt brought it about itself, or what else did."""


class Executor(Protocol):
    """Runs attempts in processes of their own. Safe to call from several threads."""

    def capacity(self) -> Sequence[Slot]:
        """Return every slot there is for this coordinator, those in use by it included.

        Machines may come and go, so that the next answer may be another one.
        """
        ...

    def reserve(self, attempt_id: str, slot: Slot) -> bool:
        """Keep a slot for an attempt that is about to start; False: another coordinator has it.

        A slot that is the coordinator's alone needs no more than its own bookkeeping. A reservation
        ends with the attempt's process, and without one when the machine hears of no such attempt.
        """
        ...

    def book(
        self, session: Session, ticket: AttemptTicket, slot: Slot, *, ahead: bool = False
    ) -> bool:
        """Take a slot in the transaction that writes the attempt's row; False: another has it.

        `ahead`: an attempt of ours has it, and this one is begun by the machine when that has
        ended.
        """
        ...

    def start(self, ticket: AttemptTicket, slot: Slot) -> None:
        """Run the worker for this ticket on this slot; returns once its process exists.

        Raises:
            ExecutorError: the process could not be started, or the attempt runs already.
        """
        ...

    def cancel(self, attempt_id: str, grace_seconds: float) -> None:
        """Send SIGTERM to the attempt's process group and, after the grace time, SIGKILL.

        Returns at once; the end is reported by `poll`. An attempt that has ended is left alone.
        """
        ...

    def adopt(self, attempt_id: str) -> int | None:
        """Take over an attempt that another coordinator left at work, or one that died.

        Returns:
            The number of its place on the slot; null: it is not at work any more.
        """
        ...

    def keeps(self, attempt_id: str) -> bool:
        """Whether an attempt goes on when this executor is closed."""
        ...

    def unheard(self) -> Set[str]:
        """The attempts of which nothing could be heard lately, whatever they do.

        Their leases are not to be held against them: where they speak to was away.
        """
        ...

    def poll(self, timeout_seconds: float) -> Sequence[Exit]:
        """Return the attempts that ended since the last call, each one once.

        Waits up to `timeout_seconds` for a first one, and returns as soon as there is one.
        """
        ...

    def log_path(self, attempt_id: str) -> Path:
        """Name the file that holds what the attempt wrote to stdout and stderr."""
        ...

    def close(self) -> None:
        """Kill what still runs and give everything back. Closing twice is harmless."""
        ...
