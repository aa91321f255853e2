"""Which executor runs attempts, by the setting `executor`."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from search.agents.api_client import unix_url
from search.agents.executors import Executor, LocalExecutor, Slot
from search.agents.executors.slots import cpu_slots, gpu_slots
from search.agents.forking.containment import contain
from search.agents.forking.host_memory import slot_memory
from search.agents.forking.server_process import Launch
from search.agents.launchers.ray import check_installed
from service.settings import ExecutorName, Settings


@dataclass(frozen=True)
class _Kind:
    """One way to run attempts."""

    make: Callable[[Settings, Launch], Executor | None]
    """None where the settings leave it no slot."""
    slots_stay: bool = True
    """Whether a slot that is not there will not come either."""
    is_here: bool = True
    """Whether all of its slots are on this machine."""


def own_slots(settings: Settings) -> tuple[Slot, ...]:
    """The slots of this machine, of which there may be none; with no workers, its GPUs alone."""
    slots = (*gpu_slots(settings.slots_per_gpu), *cpu_slots(settings.workers))
    memory = settings.slot_memory or slot_memory(len(slots))
    return tuple(replace(slot, memory=memory) for slot in slots)


def api_url(settings: Settings) -> str:
    """Where attempts reach the API."""
    return settings.url or f"http://{settings.host}:{settings.port}"


def attempts_url(settings: Settings) -> str:
    """Where the attempts of our own executor reach the API: its socket, where they can."""
    if settings.attempts_socket is not None and _KINDS[settings.executor].is_here:
        return unix_url(settings.attempts_socket.absolute())
    return api_url(settings)


def make_executor(settings: Settings, launch: Launch) -> Executor | None:
    """Make what runs attempts, beside machines that join; None where the settings leave no slot.

    `launch` starts the fork server of those on this machine.

    Raises:
        ExecutorError: the executor needs what is not installed.
    """
    return _KINDS[settings.executor].make(settings, launch)


def slot_wait_seconds(settings: Settings) -> float:
    """How long a study waits for a slot that serves it."""
    stay = _KINDS[settings.executor].slots_stay
    return settings.slot_wait_seconds if stay else math.inf


def _local(settings: Settings, launch: Launch) -> Executor | None:
    if settings.workers == 0:
        return None
    slots = own_slots(settings)
    if not slots:
        return None
    containment = contain(settings.containment)
    return LocalExecutor(slots, logs=settings.logs_dir, launch=launch, containment=containment)


def _inline(settings: Settings, _launch: Launch) -> Executor:
    # All that a worker needs comes with it, which a coordinator of processes does without.
    from search.agents.executors.inline import InlineExecutor

    memory = settings.slot_memory or slot_memory(1)
    return InlineExecutor(logs=settings.logs_dir, memory=memory)


def _ray(_settings: Settings, _launch: Launch) -> None:
    # Agents that a launcher places join as any other machines do.
    check_installed()


_KINDS: Mapping[ExecutorName, _Kind] = {
    "local": _Kind(_local),
    "ray": _Kind(_ray, slots_stay=False, is_here=False),
    "inline": _Kind(_inline),
}
