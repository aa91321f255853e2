"""The base of all roles: how an operator reads a weight."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self, TypeAlias

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper

from models.errors import ExportError
from models.graphs.layers.arrangement import Arrangement
from models.graphs.layers.node_writer import NodeWriter

Matrix: TypeAlias = NDArray[np.float32]
AnyArray: TypeAlias = NDArray[Any]
Element: TypeAlias = Literal["float32", "float16"]


@dataclass(frozen=True)
class Use:
    """An input of a node that is a weight."""

    node: onnx.NodeProto
    place: int
    """Which of the node's inputs."""
    native: tuple[int, ...]
    """The weight's shape in the file."""

    @property
    def attributes(self) -> Mapping[str, Any]:
        """The node's attributes by name; text is bytes."""
        return {entry.name: helper.get_attribute_value(entry) for entry in self.node.attribute}


@dataclass(frozen=True)
class Operand:
    """A value of a node that calibration looks at."""

    side: Literal["input", "output"]
    place: int


@dataclass(frozen=True, eq=False)
class Reading:
    """What one node's weight read in one run."""

    positions: int
    """How often each direction's matrix was applied to a vector."""
    vectors: tuple[Matrix, ...] = ()
    """A sample of the vectors `[N, in]` that were read, for each direction; empty: not known."""
    counts: NDArray[np.int64] | None = None
    """How often each row `[out]` was looked up."""


@dataclass(frozen=True)
class Spatial:
    """The window of a convolution, one number a spatial axis."""

    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    pads: tuple[int, ...]
    """Zeros before each axis, then behind each."""
    auto_pad: str = "NOTSET"


@dataclass(frozen=True)
class Role(ABC):
    """One way in which an operator reads a weight.

    A new one is a file and a name in `ROLES`. `kind` is its name; `structured` says that a matrix
    may be replaced by a product of two, `runnable` that these two may be applied one by one.
    """

    kind: ClassVar[str]
    structured: ClassVar[bool] = False
    runnable: ClassVar[bool] = False
    quantized: ClassVar[bool] = False
    """The weight is stored as integers already, and is left alone."""

    arrangement: Arrangement

    @classmethod
    @abstractmethod
    def of(cls, use: Use) -> Self | None:
        """The role of this use, or None where it is another."""

    @property
    def part(self) -> str:
        """What tells this weight from others of its node; empty where there is one."""
        return ""

    @property
    def spatial(self) -> Spatial | None:
        """The window in which the weight is moved; None where there is none."""
        return None

    @property
    def numbers_per_channel(self) -> int:
        """How many neighbouring inputs belong to one channel."""
        return 1

    def operands(self) -> tuple[Operand, ...]:
        """The values that `read` needs, in its order; empty: nothing is looked at."""
        return ()

    def read(
        self,
        values: Sequence[AnyArray | None],
        generator: np.random.Generator,
        most: int,
    ) -> Reading:
        """What the weight read, of the values that `operands` names (None: the file has none).

        Up to `most` vectors, drawn by the generator where there are more of a convolution.
        """
        del values, generator, most
        return Reading(positions=0)

    def run_factors(
        self, writer: NodeWriter, node: onnx.NodeProto, left: str, right: str, rank: int
    ) -> None:
        """Write what computes the node's output through two factors.

        `left` is `[rank, out]` and `right` is `[rank, in]`, of the element type of the weight.

        Raises:
            ExportError: factors of this role are never run.
        """
        del writer, left, right, rank
        raise ExportError(f"factors of {self.kind} ({node.op_type}) cannot run by themselves")


def whole_number(use: Use, name: str, default: int) -> int:
    """An attribute that is a whole number."""
    return int(use.attributes.get(name, default))
