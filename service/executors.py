"""Which executor runs attempts, by the setting `executor`."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from search.executors import Executor, LocalExecutor, Slot
from search.executors.ray import Cluster, RayExecutor
from search.executors.slots import cpu_slots, gpu_slots
from service.settings import ExecutorName, Settings


@dataclass(frozen=True)
class _Kind:
    """One way to run attempts."""

    make: Callable[[Settings], Executor | None]
    """None where the settings leave it no slot."""
    slots_stay: bool = True
    """Whether a slot that is not there will not come either."""


def own_slots(settings: Settings) -> tuple[Slot, ...]:
    """The slots of this machine, of which there may be none."""
    if settings.workers == 0:
        return ()
    return (*gpu_slots(settings.slots_per_gpu), *cpu_slots(settings.workers))


def api_url(settings: Settings) -> str:
    """Where attempts reach the API."""
    return settings.url or f"http://{settings.host}:{settings.port}"


def make_executor(settings: Settings) -> Executor | None:
    """Make what runs attempts, beside machines that join; None where the settings leave no slot.

    Raises:
        ExecutorError: the executor needs what is not installed.
    """
    return _KINDS[settings.executor].make(settings)


def slot_wait_seconds(settings: Settings) -> float:
    """How long a study waits for a slot that serves it."""
    stay = _KINDS[settings.executor].slots_stay
    return settings.slot_wait_seconds if stay else math.inf


def _local(settings: Settings) -> Executor | None:
    slots = own_slots(settings)
    return LocalExecutor(slots, logs=settings.logs_dir) if slots else None


def _inline(settings: Settings) -> Executor:
    # All that a worker needs comes with it, which a coordinator of processes does without.
    from search.executors.inline import InlineExecutor

    return InlineExecutor(logs=settings.logs_dir)


def _ray(settings: Settings) -> Executor:
    cluster = Cluster(
        address=settings.ray_address,
        scratch=settings.ray_scratch,
        cpu_slots=settings.workers,
        slots_per_gpu=settings.slots_per_gpu,
        open=settings.ray_open,
        most_slots=settings.ray_most_slots,
        url=api_url(settings),
    )
    return RayExecutor(cluster, logs=settings.logs_dir)


_KINDS: Mapping[ExecutorName, _Kind] = {
    "local": _Kind(_local),
    "ray": _Kind(_ray, slots_stay=False),
    "inline": _Kind(_inline),
}
