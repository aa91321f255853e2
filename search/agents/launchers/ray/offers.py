"""What a node of a Ray cluster offers, from what Ray and the node itself say of it."""

from collections.abc import Mapping
from urllib.parse import urlsplit

from search.agents.executor import Slot
from search.agents.launchers.ray.messages import LOCK_RESOURCE, Cluster, Described

_LOOPBACK = ("localhost", "127.", "::1")


def slots_of(
    machine: str, resources: Mapping[str, float], described: Described, cluster: Cluster
) -> tuple[Slot, ...]:
    """Name a node's slots: parts of its GPUs with one core each, and the cores that are left.

    A node whose GPUs are not those that its driver shows offers none of them: Ray counts GPUs, and
    which ones it means cannot be told.
    """
    cores = int(resources.get("CPU", 0))
    measures = resources.get(LOCK_RESOURCE, 0) >= 1
    parts = cluster.slots_per_gpu
    # Ray counts a node's memory beside its cores, and every slot takes a core.
    memory = int(resources["memory"] / cores) if cores and "memory" in resources else None
    shown = described.gpus if len(described.gpus) == int(resources.get("GPU", 0)) else ()
    gpu_slots = [
        Slot(
            name=f"{machine}/gpu-{index}-{part}",
            device=f"cuda:{uuid}",
            model=name,
            share=1.0 / parts,
            machine=machine,
            measures=measures,
            memory=memory,
        )
        for index, (uuid, name) in enumerate(shown)
        for part in range(parts)
    ][:cores]
    left = cores - len(gpu_slots)
    cpu_slots = [
        Slot(f"{machine}/cpu-{core}", "cpu", described.cpu, 1.0, machine, measures, memory)
        for core in range(left if cluster.cpu_slots is None else min(left, cluster.cpu_slots))
    ]
    return (*gpu_slots, *cpu_slots)


def bundle_of(slot: Slot) -> dict[str, float]:
    """Say what a slot is in Ray's resources; a measurement lock has no share of its device."""
    if slot.share == 0:
        return {LOCK_RESOURCE: 1.0}
    return {"CPU": 1.0} if slot.device == "cpu" else {"CPU": 1.0, "GPU": slot.share}


def why_refused(described: Described, cluster: Cluster, *, release: str, home: str) -> str | None:
    """Say why nothing is to be started on a node; `home` is the coordinator's own loopback."""
    if described.release != release:
        return f"it has Reflectory {described.release}, and the coordinator {release}"
    if described.loopback != home and cluster.url is not None and is_loopback(cluster.url):
        return (
            f"its attempts would look for the API at {cluster.url}, which is the node itself: "
            "set REFLECTORY_URL to an address that nodes reach"
        )
    return None


def is_loopback(url: str) -> bool:
    """Whether a URL means the machine that speaks to it."""
    return (urlsplit(url).hostname or "").startswith(_LOOPBACK)
