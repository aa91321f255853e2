"""Worker machines as the API answers with them; what they say is in `search.agents`."""

from datetime import datetime

from pydantic import Field

from models.spec import Spec


class MachineSlotDocument(Spec):
    """A place on a machine where one attempt at a time runs."""

    name: str
    device: str
    model: str
    share: float = Field(description="of the device; on a CPU, cores")
    memory: int | None = Field(
        default=None, description="bytes that an attempt may take; null where that is unknown"
    )
    device_memory: int | None = Field(
        default=None, description="bytes of a GPU's own memory, likewise"
    )
    compiles: bool = Field(default=True, description="whether the machine has a C compiler")


class MachineDocument(Spec):
    """A machine that joined."""

    id: str
    name: str = Field(description="as `/v1/devices` and attempts name it")
    version: str
    leaving: bool = Field(description="it takes nothing more, and ends what runs there")
    joined_at: datetime
    seen_at: datetime = Field(description="when it asked last")
    slots: tuple[MachineSlotDocument, ...]


class MachineList(Spec):
    """All machines that joined, by name."""

    items: tuple[MachineDocument, ...]
