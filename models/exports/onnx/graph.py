"""A graph of ONNX operators under construction."""

import itertools
import string
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar, cast

import numpy as np
import onnx
import torch
from onnx import helper, numpy_helper
from torch import Tensor

from models.errors import ExportError
from models.quantization import Bits

OPSET, IR_VERSION = 17, 8
OPSET_OF_HALVES, IR_VERSION_OF_HALVES = 21, 10
"""The first that have integers of 4 bits."""
LARGEST_FILE_BYTES = (1 << 31) - (1 << 20)
"""A protobuf message holds less than 2 GiB; a mebibyte is left for what is no weight."""

Dimension = int | str

_DIGITS = string.ascii_letters

T = TypeVar("T")


@dataclass(frozen=True)
class Port:
    """An input or output of a graph; a shape of None is left open, as are named dimensions."""

    name: str
    shape: Sequence[Dimension] | None
    element: int = onnx.TensorProto.FLOAT
    doc: str = ""

    def described(self) -> onnx.ValueInfoProto:
        """As ONNX has it."""
        return helper.make_tensor_value_info(self.name, self.element, self.shape, self.doc)


class Graph:
    """Nodes in the order in which they are applied; values are known by the names returned here.

    Bodies of loops share names and constants with the graph around them: ONNX lets a body read
    whatever is visible where it stands.
    """

    def __init__(
        self,
        root: "Graph | None" = None,
        *,
        factored: bool = False,
        bits: Bits | None = None,
        dequantizes: bool = False,
    ) -> None:
        """A graph of its own, or a body within `root`.

        With `factored`, products go through the factors of matrices that have some; with `bits`,
        parameters that are rounded to these are stored as integers, of which `DequantizeLinear`
        makes numbers with `dequantizes`.
        """
        self.bits: Bits | None = bits
        self.dequantizes = dequantizes
        has_halves = dequantizes and bits == 4
        self.opset = OPSET_OF_HALVES if has_halves else OPSET
        self.ir_version = IR_VERSION_OF_HALVES if has_halves else IR_VERSION
        self.root = root or self
        self.factored = factored
        self._nodes: list[onnx.NodeProto] = []
        self._numbers = itertools.count() if root is None else root._numbers
        self._constants: dict[tuple[str, tuple[int, ...], bytes], str] = {}
        self._weights: list[onnx.TensorProto] = []
        self._weight_bytes = 0
        self._made: dict[Hashable, object] = {}

    def apply(self, operator: str, *inputs: str, **attributes: Any) -> str:
        """Append a node with one output, and name that."""
        (output,) = self.apply_many(operator, *inputs, outputs=1, **attributes)
        return output

    def apply_many(self, operator: str, *inputs: str, outputs: int, **attributes: Any) -> list[str]:
        """Append a node, and name its outputs; an input that is left out is an empty name."""
        names = [self.name() for _ in range(outputs)]
        if operator == "Split" and self.root.opset > OPSET:
            attributes["num_outputs"] = outputs
        self._nodes.append(helper.make_node(operator, inputs, names, **attributes))
        return names

    def constant(self, value: Tensor) -> str:
        """Numbers of the model in single precision.

        Equal ones are kept as often as they are given: a file's size follows from shapes alone.

        Raises:
            ExportError: together they are more than one file holds.
        """
        size = 4 * value.numel()
        held = self.root._weight_bytes
        if held + size > LARGEST_FILE_BYTES:
            raise ExportError(
                f"the weights take {held + size} bytes or more; an ONNX file holds at most "
                f"{LARGEST_FILE_BYTES}"
            )
        return self._store(value.detach().cpu().float().numpy())

    def number(self, value: float) -> str:
        """One number of single precision that has nothing to do with the model's."""
        return self._keep(np.array(value, dtype=np.float32))

    def integers(self, *values: int) -> str:
        """A vector of whole numbers, such as a shape."""
        return self._keep(np.array(values, dtype=np.int64))

    def integer(self, value: int) -> str:
        """One whole number, of no dimension."""
        return self._keep(np.array(value, dtype=np.int64))

    def double(self, value: float) -> str:
        """One number of double precision, of no dimension."""
        return self._keep(np.array(value, dtype=np.float64))

    def array(self, value: np.ndarray[Any, Any], *, shared: bool = True) -> str:
        """Numbers of whatever type they have; equal ones are kept once, if they may be shared."""
        return self._keep(value) if shared else self._store(value)

    def brain_floats(self, value: Tensor) -> str:
        """Numbers of type bfloat16."""
        raw = value.detach().cpu().contiguous().view(torch.int16).numpy().tobytes()
        return self._add(
            onnx.TensorProto(data_type=onnx.TensorProto.BFLOAT16, dims=value.shape, raw_data=raw),
            len(raw),
        )

    def halves(self, packed: Tensor, shape: Sequence[int]) -> str:
        """Integers of 4 bits, two in a byte as `pack_halves` has them."""
        raw = packed.cpu().numpy().tobytes()
        return self._add(
            onnx.TensorProto(data_type=onnx.TensorProto.INT4, dims=shape, raw_data=raw), len(raw)
        )

    def once(self, key: Hashable, make: Callable[[], T]) -> T:
        """What was made under that key, or is made now: values that depend on nothing else."""
        if key not in self.root._made:
            self.root._made[key] = make()
        return cast(T, self.root._made[key])

    def body(self) -> "Graph":
        """An empty graph for the body of a loop that will stand in this one."""
        return Graph(self.root)

    def name(self) -> str:
        """A name that nothing else has; short, for each stands in the file at least twice."""
        number, name = next(self._numbers), ""
        while number >= 0:
            number, digit = divmod(number, len(_DIGITS))
            name = _DIGITS[digit] + name
            number -= 1
        return name

    def rename(self, value: str, name: str) -> None:
        """Give a value a name of one's own choice, longer than those of `name`."""
        self._nodes.append(helper.make_node("Identity", [value], [name]))

    def described(
        self, name: str, *, inputs: Sequence["Port"], outputs: Sequence["Port"]
    ) -> onnx.GraphProto:
        """The finished graph."""
        return helper.make_graph(
            self._nodes,
            name,
            [port.described() for port in inputs],
            [port.described() for port in outputs],
            initializer=self._weights,
        )

    def bytes(self) -> int:
        """What nodes and numbers take in a file."""
        return helper.make_graph(self._nodes, "", [], [], initializer=self._weights).ByteSize()

    def _store(self, value: np.ndarray[Any, Any]) -> str:
        # A number that is made contiguous would get a dimension; a copy in this order does not.
        return self._add(numpy_helper.from_array(np.array(value, order="C")), value.nbytes)

    def _add(self, tensor: onnx.TensorProto, size: int) -> str:
        root = self.root
        root._weight_bytes += size
        tensor.name = root.name()
        root._weights.append(tensor)
        return tensor.name

    def _keep(self, value: np.ndarray[Any, Any]) -> str:
        """The name of an equal one, where there is one."""
        constants = self.root._constants
        key = (value.dtype.str, value.shape, value.tobytes())
        if key not in constants:
            constants[key] = self._store(value)
        return constants[key]
