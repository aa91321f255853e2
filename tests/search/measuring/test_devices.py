import platform
import subprocess

import pytest
import torch

from search.measuring.devices import device_model, driver_version


def test_a_cpu_is_named_as_lscpu_names_it() -> None:
    listing = subprocess.run(["lscpu"], capture_output=True, text=True, check=True).stdout
    names = [line.split(":", 1)[1].strip() for line in listing.splitlines() if "Model name" in line]
    name = device_model("cpu")
    assert name.endswith(f"({platform.machine()})")
    if platform.machine() == "x86_64":
        assert name.removesuffix(" (x86_64)") in names
    assert driver_version("cpu") is None


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
