"""How much memory this machine leaves to the attempts that run on it."""

import os
from pathlib import Path

SERVICE_BYTES = 3 << 29
"""What the API, the coordinator, the dashboard and the fork server take: 1.5 GiB."""

LEAST_SLOT_BYTES = 1 << 29
"""What a slot has at the least by default. Of more slots than memory, few run at their limit."""

_V1_LIMIT = "memory.limit_in_bytes"
_V2_LIMIT = "memory.max"


def slot_memory(slots: int) -> int:
    """Return the bytes that each of `slots` attempts side by side may take by default.

    They share what the machine, or the control group of this process, has beside the service.
    """
    total = available_bytes()
    shared = total - min(SERVICE_BYTES, total // 2)
    return max(LEAST_SLOT_BYTES, shared // max(1, slots))


def available_bytes() -> int:
    """Return the bytes that this process may use: RAM, or less by its control groups."""
    ram = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    try:
        groups = Path("/proc/self/cgroup").read_text()
    except OSError:
        return ram
    return min([ram, *limits(groups, Path("/sys/fs/cgroup"))])


def limits(groups: str, root: Path) -> list[int]:
    """Return the limits on a process in these control groups and in those that hold them.

    Args:
        groups: `/proc/self/cgroup`, lines of `number:controllers:path`.
        root: where control groups are mounted.
    """
    found: list[int] = []
    for line in groups.splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            mount, name = root, _V2_LIMIT
        elif "memory" in controllers.split(","):
            mount, name = root / "memory", _V1_LIMIT
        else:
            continue
        group = mount / path.lstrip("/")
        # In a container the path may be the host's, and the mount the container's own group.
        for folder in (group, *group.parents):
            found.extend(_limit(folder / name))
            if folder == mount:
                break
    return found


def _limit(file: Path) -> list[int]:
    try:
        text = file.read_text().strip()
    except OSError:
        return []
    return [int(text)] if text.isdecimal() and int(text) > 0 else []
