"""Nodes and constants that are added to a graph, under short names that it does not have."""

import itertools
from collections.abc import Collection, Iterator
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper, numpy_helper

_LETTERS = "abcdefghijklmnopqrstuvwxyz"


class NodeWriter:
    """Nodes in the order in which they are computed; values are known by the names returned."""

    def __init__(self, taken: Collection[str]) -> None:
        """Names in `taken` are not given again."""
        self.nodes: list[onnx.NodeProto] = []
        self.initializers: list[onnx.TensorProto] = []
        self._names = (name for name in _short_names() if name not in taken)
        self._shared: dict[tuple[str, tuple[int, ...], bytes], str] = {}

    def constant(self, value: NDArray[Any]) -> str:
        """A tensor of its own."""
        name = next(self._names)
        # A number that is made contiguous would get a dimension; a copy in this order does not.
        self.initializers.append(numpy_helper.from_array(np.array(value, order="C"), name))
        return name

    def shared(self, value: NDArray[Any]) -> str:
        """A small tensor; equal ones are stored once."""
        key = (value.dtype.str, value.shape, value.tobytes())
        if key not in self._shared:
            self._shared[key] = self.constant(value)
        return self._shared[key]

    def integers(self, *values: int) -> str:
        """A vector of int64, such as a shape."""
        return self.shared(np.array(values, np.int64))

    def node(self, operator: str, *inputs: str, output: str = "", **attributes: Any) -> str:
        """Append a node with one output, and name that; `output` gives it a name of your choice."""
        name = output or next(self._names)
        self.nodes.append(helper.make_node(operator, inputs, [name], **attributes))
        return name

    def taken_over(self, node: onnx.NodeProto) -> None:
        """Append a node of the graph as it is."""
        self.nodes.append(node)

    def cut(self) -> list[onnx.NodeProto]:
        """The nodes that were appended since the last cut."""
        found, self.nodes = self.nodes, []
        return found


def _short_names() -> Iterator[str]:
    for length in itertools.count(1):
        for letters in itertools.product(_LETTERS, repeat=length):
            yield "~" + "".join(letters)
