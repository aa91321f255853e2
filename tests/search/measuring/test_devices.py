import os
import platform
import subprocess
from pathlib import Path

import pytest
import torch

from search.measuring import devices
from search.measuring.devices import device_model, driver_version


def test_a_cpu_is_named_as_lscpu_names_it() -> None:
    listing = subprocess.run(["lscpu"], capture_output=True, text=True, check=True).stdout
    names = [line.split(":", 1)[1].strip() for line in listing.splitlines() if "Model name" in line]
    name = device_model("cpu")
    assert name.endswith(f"({platform.machine()})")
    if platform.machine() == "x86_64":
        assert name.removesuffix(" (x86_64)") in names
    assert driver_version("cpu") is None


@pytest.mark.parametrize(("said", "expected"), [("580.159.04\n", "580.159.04"), (None, None)])
def test_a_driver_that_the_kernel_does_not_tell_of_is_asked_for(
    said: str | None, expected: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a virtual machine that has a GPU, and no file of its driver."""
    if Path("/proc/driver/nvidia/version").exists():
        pytest.skip("a driver is installed here")
    program = tmp_path / "nvidia-smi"
    program.write_text(f"#!/bin/sh\n{'exit 9' if said is None else f'echo {said}'}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    devices._asked_driver.cache_clear()  # pyright: ignore[reportPrivateUsage] -- of the process
    try:
        assert driver_version("cuda") == expected
    finally:
        devices._asked_driver.cache_clear()  # pyright: ignore[reportPrivateUsage] -- as above


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_a_gpu_is_named_as_nvidia_smi_names_it() -> None:
    def ask(field: str) -> str:
        command = ["nvidia-smi", f"--query-gpu={field}", "--format=csv,noheader"]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.split(
            "\n"
        )[0]

    assert device_model("cuda") == ask("name").strip()
    assert driver_version("cuda") == ask("driver_version").strip()
