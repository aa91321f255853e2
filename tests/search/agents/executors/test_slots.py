import os
from collections.abc import Callable
from pathlib import Path

import pytest

from search.agents.executors import slots as slots_module
from search.agents.executors.slots import cpu_slots, gpu_slots
from search.agents.forking.host_memory import LEAST_SLOT_BYTES, available_bytes, limits, slot_memory
from search.errors import ExecutorError
from search.measuring.devices import device_model

DRIVER = Path("/dev/nvidiactl").exists()


def test_there_is_one_cpu_slot_for_each_core_that_we_may_use() -> None:
    assert len(cpu_slots()) == len(os.sched_getaffinity(0))
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(before)})
    try:
        assert [slot.name for slot in cpu_slots()] == ["cpu-0"]
    finally:
        os.sched_setaffinity(0, before)


def test_a_cpu_slot_is_one_core_and_is_called_as_measurements_call_it() -> None:
    slots = cpu_slots(3)
    assert [slot.name for slot in slots] == ["cpu-0", "cpu-1", "cpu-2"]
    assert {(slot.device, slot.model, slot.share) for slot in slots} == {
        ("cpu", device_model("cpu"), 1.0)
    }


def test_impossible_counts_are_refused_with_their_value() -> None:
    with pytest.raises(ValueError, match="-1 CPU slots"):
        cpu_slots(-1)
    with pytest.raises(ValueError, match="0 slots per GPU"):
        gpu_slots(0)


@pytest.mark.skipif(DRIVER, reason="a driver is installed here")
def test_a_machine_without_a_driver_has_no_gpu_slots() -> None:
    assert gpu_slots(4) == ()


@pytest.mark.gpu
@pytest.mark.skipif(not DRIVER, reason="no GPU here")
def test_a_gpu_is_shared_by_its_slots() -> None:
    slots = gpu_slots(2)
    assert slots
    assert {slot.share for slot in slots} == {0.5}
    assert all(slot.device.startswith("cuda:GPU-") for slot in slots)
    first, second = slots[:2]
    assert first.device_memory == second.device_memory
    assert first.device_memory is not None
    assert first.device_memory > 0


TWO_GPUS = """
from types import SimpleNamespace as _Of
def _properties(device):
    return _Of(uuid=f"uuid-{device}", name="NVIDIA H100", total_memory=80_000_000_001)
cuda = _Of(device_count=lambda: 2, is_available=lambda: True, get_device_properties=_properties)
"""
NO_GPU = TWO_GPUS + "cuda.is_available = lambda: False"
BROKEN = "raise RuntimeError('the driver is older than the runtime')"


@pytest.fixture
def answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Has a torch of our own asked for GPUs, where a driver is installed."""
    driver = tmp_path / "nvidia-smi"
    driver.write_text("#!/bin/sh")
    driver.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))

    def give(program: str) -> None:
        (tmp_path / "torch.py").write_text(program)

    return give


def test_gpus_that_a_driver_has_are_slots_with_their_share_of_memory(
    answer: Callable[[str], None],
) -> None:
    answer(TWO_GPUS)
    slots = gpu_slots(2)
    assert [slot.name for slot in slots] == ["gpu-0-0", "gpu-0-1", "gpu-1-0", "gpu-1-1"]
    assert [slot.device for slot in slots[1:3]] == ["cuda:GPU-uuid-0", "cuda:GPU-uuid-1"]
    assert {(slot.model, slot.share) for slot in slots} == {("NVIDIA H100", 0.5)}
    assert {slot.device_memory for slot in slots} == {40_000_000_000}


def test_a_driver_without_a_gpu_is_no_slot_and_one_that_fails_says_why(
    answer: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    answer(NO_GPU)
    assert gpu_slots() == ()
    answer(BROKEN)
    with pytest.raises(ExecutorError, match="list the GPUs: RuntimeError: the driver is older"):
        gpu_slots()
    answer("import time\ntime.sleep(60)")
    monkeypatch.setattr(slots_module, "_ASK_SECONDS", 0.2)
    with pytest.raises(ExecutorError, match=r"did not list the GPUs in 0\.2 s"):
        gpu_slots()


def test_slots_share_what_the_service_leaves_of_the_memory() -> None:
    total = available_bytes()
    assert 0 < slot_memory(1) < total
    assert slot_memory(2) == max(LEAST_SLOT_BYTES, slot_memory(1) // 2)
    assert slot_memory(10**6) == LEAST_SLOT_BYTES


def test_memory_is_that_of_the_strictest_control_group_above_us(tmp_path: Path) -> None:
    inner = tmp_path / "outer" / "inner"
    inner.mkdir(parents=True)
    (inner / "memory.max").write_text("max\n")
    (inner.parent / "memory.max").write_text("3000\n")
    old = tmp_path / "memory" / "job"
    old.mkdir(parents=True)
    (old / "memory.limit_in_bytes").write_text("2000\n")
    (old.parent / "memory.limit_in_bytes").write_text("9223372036854771712\n")
    assert limits("0::/outer/inner\n", tmp_path) == [3000]
    assert min(limits("4:cpu:/x\n3:memory:/job\n0::/outer/inner\n", tmp_path)) == 2000
    assert limits("0::/elsewhere\n", tmp_path) == []
