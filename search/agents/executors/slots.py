"""What this machine has to run attempts on."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from models.exports.c.toolchain import has_compiler
from search.agents.executor import Slot
from search.errors import ExecutorError
from search.measuring.devices import device_model

_ASK_SECONDS = 120.0
"""The first CUDA call of a machine can take half a minute while the driver loads."""

_ASK_TORCH = """
import json, torch
devices = range(torch.cuda.device_count()) if torch.cuda.is_available() else ()
properties = [torch.cuda.get_device_properties(device) for device in devices]
print(json.dumps([[f"GPU-{p.uuid}", p.name, p.total_memory] for p in properties]))
"""


class Gpu(NamedTuple):
    """A GPU of this machine."""

    uuid: str
    name: str
    memory: int
    """In bytes."""


def cpu_slots(count: int | None = None) -> tuple[Slot, ...]:
    """Return `count` slots of one core each; by default one per core that this process may use."""
    cores = len(os.sched_getaffinity(0)) if count is None else count
    if cores < 0:
        raise ValueError(f"{count} CPU slots: the count is 0 or more")
    model = device_model("cpu")
    compiles = has_compiler()
    return tuple(Slot(f"cpu-{core}", "cpu", model, 1.0, compiles=compiles) for core in range(cores))


def gpu_slots(slots_per_gpu: int = 1) -> tuple[Slot, ...]:
    """Return `slots_per_gpu` slots for each GPU that torch can use; none without a GPU.

    torch is asked in a process of its own, so that CUDA stays untouched in this one.
    """
    if slots_per_gpu < 1:
        raise ValueError(f"{slots_per_gpu} slots per GPU: the count is 1 or more")
    return tuple(
        Slot(
            f"gpu-{index}-{part}",
            f"cuda:{gpu.uuid}",
            gpu.name,
            1.0 / slots_per_gpu,
            device_memory=gpu.memory // slots_per_gpu,
        )
        for index, gpu in enumerate(gpus())
        for part in range(slots_per_gpu)
    )


def gpus() -> Sequence[Gpu]:
    """Return the GPUs of this machine; costs an `import torch` where a driver is installed."""
    if shutil.which("nvidia-smi") is None and not Path("/dev/nvidiactl").exists():
        return ()
    try:
        answer = subprocess.run(
            [sys.executable, "-c", _ASK_TORCH],
            check=True,
            capture_output=True,
            text=True,
            timeout=_ASK_SECONDS,
        )
    except subprocess.CalledProcessError as error:
        last = (error.stderr.strip().splitlines() or ["no message"])[-1]
        raise ExecutorError(f"torch could not list the GPUs: {last}") from error
    except subprocess.TimeoutExpired as error:
        raise ExecutorError(f"torch did not list the GPUs in {_ASK_SECONDS:g} s") from error
    return [Gpu(*fields) for fields in json.loads(answer.stdout)]
