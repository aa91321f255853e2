"""The devices of all machines as the API answers with them."""

from datetime import datetime
from typing import Literal

from pydantic import Field

from models.spec import Spec
from storage.records import AttemptKind


class SlotAttempt(Spec):
    """What runs on a slot."""

    study: str
    trial: int | None = Field(description="null for a job of the whole study")
    kind: AttemptKind
    since: datetime


class SlotDocument(Spec):
    """A place where one attempt at a time runs."""

    name: str
    share: float = Field(description="of the device; on a CPU, cores")
    busy: bool
    memory: int | None = Field(
        default=None, description="bytes that an attempt may take; null where that is unknown"
    )
    device_memory: int | None = Field(
        default=None, description="bytes of a GPU's own memory, likewise"
    )
    attempt: SlotAttempt | None = Field(
        default=None,
        description="null while nothing runs here, and while what runs is not yours to see",
    )


class MeasurementLockDocument(Spec):
    """The device's measurement lock: throughput is measured while nothing else computes there."""

    state: Literal["free", "waiting", "measuring"] = Field(
        description="`waiting`: a measuring job lets others come to the end of their batches"
    )
    study: str | None = None
    trial: int | None = Field(default=None, description="the first one that is measured")


class DeviceDocument(Spec):
    """A device of a machine whose coordinator lives, or that joined and is heard of."""

    machine: str
    device: str = Field(description="`cpu`, or `cuda:` and the GPU's own id")
    model: str = Field(description="as studies name it in `throughput.device`")
    slots: tuple[SlotDocument, ...]
    lane: MeasurementLockDocument

    @property
    def lock(self) -> MeasurementLockDocument:
        """The measurement lock, which answers have under an older name."""
        return self.lane


class DeviceList(Spec):
    """All devices, by machine."""

    items: tuple[DeviceDocument, ...]


DEVICES_EXAMPLE = {
    "items": [
        {
            "machine": "ada",
            "device": "cuda:GPU-2f1c3a5e-7f0e-4f7e-9d55-8f0a3c1f2b4d",
            "model": "NVIDIA H100 80GB HBM3",
            "slots": [
                {
                    "name": "gpu-0-0",
                    "share": 0.5,
                    "busy": True,
                    "memory": 17179869184,
                    "device_memory": 42949672960,
                    "attempt": {
                        "study": "b8f0c1d2e3a4",
                        "trial": 7,
                        "kind": "train",
                        "since": "2026-03-01T12:00:00Z",
                    },
                },
                {
                    "name": "gpu-0-1",
                    "share": 0.5,
                    "busy": False,
                    "memory": 17179869184,
                    "device_memory": 42949672960,
                    "attempt": None,
                },
            ],
            "lane": {"state": "free", "study": None, "trial": None},
        }
    ]
}
