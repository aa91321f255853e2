"""Sizes that a file gives its inputs as numbers, where nodes ask for them.

A runtime folds a shape only if all its sizes are numbers; exporters ask for one of them, to decide
whether a state is empty. Runtimes refuse inputs of other sizes than those that a file gives.
"""

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from onnx import GraphProto, NodeProto, helper, numpy_helper

Value: TypeAlias = Callable[[str], NDArray[Any] | None]
"""What a name stands for, if it is a constant that stands in the file."""


class InputSizes:
    """Follows sizes of inputs through `Shape` and `Gather`."""

    def __init__(self, graph: GraphProto) -> None:
        self._shapes: dict[str, list[int | None]] = {}
        self._vectors: dict[str, list[int | None]] = {}
        """What `Shape` gives: sizes, of which some are numbers."""
        for port in graph.input:
            described = port.type.tensor_type
            if described.HasField("shape"):
                self._shapes[port.name] = [
                    size.dim_value if size.dim_value > 0 else None for size in described.shape.dim
                ]

    def constant(self, node: NodeProto, value: Value) -> NodeProto | None:
        """A `Constant` in the place of a node that gives sizes which are all numbers."""
        if not node.input or not node.output:
            return None
        if node.op_type == "Shape" and node.input[0] in self._shapes:
            attributes = {held.name: held.i for held in node.attribute}
            span = slice(attributes.get("start", 0), attributes.get("end"))
            sizes = self._shapes[node.input[0]][span]
            self._vectors[node.output[0]] = sizes
            return _constant(node, np.array(sizes)) if None not in sizes else None
        if node.op_type == "Gather" and node.input[0] in self._vectors and len(node.input) > 1:
            return self._gathered(node, value(node.input[1]))
        return None

    def _gathered(self, node: NodeProto, places: NDArray[Any] | None) -> NodeProto | None:
        sizes = self._vectors[node.input[0]]
        if places is None or places.dtype.kind != "i":
            return None
        if any(not -len(sizes) <= place < len(sizes) for place in places.flat):
            return None
        found = [sizes[int(place)] for place in places.flat]
        if None in found:
            return None
        return _constant(node, np.array(found).reshape(places.shape))


def _constant(node: NodeProto, sizes: NDArray[Any]) -> NodeProto:
    tensor = numpy_helper.from_array(sizes.astype(np.int64))
    return helper.make_node("Constant", [], [node.output[0]], name=node.name, value=tensor)
