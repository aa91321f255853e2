"""A graph of ONNX operators under construction."""

import hashlib
import itertools
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper
from torch import Tensor

from models.errors import ExportError

OPSET = 17
IR_VERSION = 8
LARGEST_FILE_BYTES = (1 << 31) - (1 << 20)
"""A protobuf message holds less than 2 GiB; a mebibyte is left for what is no weight."""

Dimension = int | str


class Graph:
    """Nodes in the order in which they are applied; values are known by the names returned here.

    Bodies of loops share names and constants with the graph around them: ONNX lets a body read
    whatever is visible where it stands.
    """

    def __init__(self, root: "Graph | None" = None) -> None:
        """A graph of its own, or a body within `root`."""
        self.root = root or self
        self._nodes: list[onnx.NodeProto] = []
        self._numbers = itertools.count() if root is None else root._numbers
        self._constants: dict[tuple[str, tuple[int, ...], bytes], str] = {}
        self._weights: list[onnx.TensorProto] = []
        self._weight_bytes = 0

    def apply(self, operator: str, *inputs: str, **attributes: Any) -> str:
        """Append a node with one output, and name that."""
        (output,) = self.apply_many(operator, *inputs, outputs=1, **attributes)
        return output

    def apply_many(self, operator: str, *inputs: str, outputs: int, **attributes: Any) -> list[str]:
        """Append a node, and name its outputs; an input that is left out is an empty name."""
        names = [self.name(operator.lower()) for _ in range(outputs)]
        self._nodes.append(helper.make_node(operator, inputs, names, name=names[0], **attributes))
        return names

    def constant(self, value: Tensor) -> str:
        """Numbers of the model in single precision; equal ones are kept once.

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
        return self._keep("weight", value.detach().cpu().float().numpy())

    def integers(self, *values: int) -> str:
        """A vector of whole numbers, such as a shape."""
        return self._keep("integers", np.array(values, dtype=np.int64))

    def body(self) -> "Graph":
        """An empty graph for the body of a loop that will stand in this one."""
        return Graph(self.root)

    def name(self, stem: str) -> str:
        """A name that nothing else has."""
        return f"{stem}_{next(self._numbers)}"

    def rename(self, value: str, name: str) -> None:
        """Give a value a name of one's own choice."""
        self._nodes.append(helper.make_node("Identity", [value], [name], name=name))

    def described(
        self,
        name: str,
        *,
        inputs: Sequence[tuple[str, Sequence[Dimension] | None]],
        outputs: Sequence[tuple[str, Sequence[Dimension] | None]],
        reads_tokens: bool = False,
    ) -> onnx.GraphProto:
        """The finished graph; shapes that are None are left open, as are named dimensions.

        All values are numbers of single precision; with `reads_tokens` the inputs are whole ones.
        """
        read = onnx.TensorProto.INT64 if reads_tokens else onnx.TensorProto.FLOAT
        return helper.make_graph(
            self._nodes,
            name,
            [helper.make_tensor_value_info(value, read, shape) for value, shape in inputs],
            [
                helper.make_tensor_value_info(value, onnx.TensorProto.FLOAT, shape)
                for value, shape in outputs
            ],
            initializer=self._weights,
        )

    def _keep(self, stem: str, value: np.ndarray[Any, Any]) -> str:
        root = self.root
        value = np.ascontiguousarray(value)
        # Matrices that share a factor meet it here again.
        key = (value.dtype.str, value.shape, hashlib.sha256(value.data).digest())
        if key not in root._constants:
            root._weight_bytes += value.nbytes
            name = root.name(stem)
            root._weights.append(numpy_helper.from_array(value, name))
            root._constants[key] = name
        return root._constants[key]
