"""What this machine has to run attempts on, by the settings, and where they reach the API."""

import math
from dataclasses import replace

from search.agents.api_client import unix_url
from search.agents.executors import Slot
from search.agents.executors.slots import cpu_slots, gpu_slots
from search.agents.forking.host_memory import slot_memory
from service.settings import Settings


def own_slots(settings: Settings) -> tuple[Slot, ...]:
    """The slots of this machine, of which there may be none; with no workers, its GPUs alone."""
    if settings.executor == "inline":
        slots = (replace(cpu_slots(1)[0], name="inline"),)
    else:
        slots = (*gpu_slots(settings.slots_per_gpu or 1), *cpu_slots(settings.workers))
    memory = settings.slot_memory or slot_memory(len(slots))
    return tuple(replace(slot, memory=memory) for slot in slots)


def wants_own_agent(settings: Settings) -> bool:
    """Whether what runs studies here is to have an agent of this machine's own slots.

    With no workers it has one where the slots of its GPUs were asked for.
    """
    has_slots = settings.workers != 0 or settings.slots_per_gpu is not None
    return settings.executor != "ray" and has_slots


def api_url(settings: Settings) -> str:
    """Where machines reach the API."""
    return settings.url or f"http://{settings.host}:{settings.port}"


def own_api_url(settings: Settings) -> str:
    """Where this machine's own agent reaches the API: its socket, where there is one."""
    if settings.attempts_socket is not None:
        return unix_url(settings.attempts_socket.absolute())
    return api_url(settings)


def slot_wait_seconds(settings: Settings) -> float:
    """How long a study waits for a slot that serves it."""
    return math.inf if settings.executor == "ray" else settings.slot_wait_seconds
