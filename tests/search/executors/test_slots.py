import os
from pathlib import Path

import pytest

from search.devices import device_model
from search.executors.slots import cpu_slots, gpu_slots

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
