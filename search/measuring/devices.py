"""What a device calls itself, so that a measured number names where it was measured."""

import platform
import re
import subprocess
from functools import cache
from pathlib import Path

import torch


@cache
def device_model(device: torch.device | str) -> str:
    """Give a device's model: `Intel(R) Xeon(R) Processor (x86_64)`, or `NVIDIA H200`."""
    device = torch.device(device)
    if device.type == "cuda":
        return torch.cuda.get_device_name(device)
    return f"{_cpu_name()} ({platform.machine()})"


def driver_version(device: torch.device | str) -> str | None:
    """Give the version of the device's driver; None for a CPU, or where it is not known."""
    if torch.device(device).type != "cuda":
        return None
    version = _first_match(Path("/proc/driver/nvidia/version"), r"Kernel Module\D*\s([\d.]+)\s")
    return version or _asked_driver()


@cache
def _asked_driver() -> str | None:
    """What `nvidia-smi` says: small virtual machines lack the kernel's file."""
    command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        said = subprocess.run(command, capture_output=True, text=True, check=True, timeout=30)
    except (OSError, subprocess.SubprocessError):
        return None
    return next(iter(said.stdout.split()), None)


def _cpu_name() -> str:
    # Arm kernels print no model name, but an implementer and a part number.
    cpuinfo = Path("/proc/cpuinfo")
    name = _first_match(cpuinfo, r"^model name\s*:\s*(.+?)\s*$")
    part = _first_match(cpuinfo, r"^CPU part\s*:\s*(.+?)\s*$")
    return name or (f"CPU part {part}" if part else platform.processor() or "CPU")


def _first_match(path: Path, pattern: str) -> str | None:
    try:
        text = path.read_text()
    except OSError:
        return None
    found = re.search(pattern, text, re.MULTILINE)
    return found.group(1) if found else None
