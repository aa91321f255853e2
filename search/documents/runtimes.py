"""What may run a model while it is measured, and where each of them can."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

RuntimeName: TypeAlias = Literal["reflectory", "onnxruntime", "c", "torch"]
Mode: TypeAlias = Literal["inference", "training"]
DeviceKind: TypeAlias = Literal["cpu", "cuda"]


@dataclass(frozen=True, kw_only=True)
class RuntimeKind:
    """One runtime, as a study names it."""

    name: RuntimeName
    devices: tuple[DeviceKind, ...]
    modes: tuple[Mode, ...]
    most_threads: int | None = None
    """Null: as many as the machine has."""
    compiles: bool = False
    """Whether it needs a C compiler where it measures."""
    rounds: bool = True
    """Whether it runs numbers of fewer bits than 32 as they are stored or rounded."""


_KINDS = (
    RuntimeKind(name="reflectory", devices=("cpu", "cuda"), modes=("inference", "training")),
    RuntimeKind(name="onnxruntime", devices=("cpu",), modes=("inference",)),
    RuntimeKind(name="c", devices=("cpu",), modes=("inference",), most_threads=1, compiles=True),
    RuntimeKind(
        name="torch", devices=("cpu", "cuda"), modes=("inference", "training"), rounds=False
    ),
)

RUNTIME_KINDS: Mapping[RuntimeName, RuntimeKind] = {kind.name: kind for kind in _KINDS}
"""By name; `search.measuring.runtimes` has the code of each."""


def running(*, mode: Mode | None = None, device: DeviceKind | None = None) -> tuple[str, ...]:
    """The names of those that run in a mode, or on a kind of device."""
    return tuple(
        kind.name
        for kind in _KINDS
        if (mode is None or mode in kind.modes) and (device is None or device in kind.devices)
    )
