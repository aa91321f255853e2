"""Which initializers of a graph are worth training."""

from collections.abc import Iterator, Mapping

import numpy as np
import onnx
from onnx import numpy_helper

from models.graphs.interpreter.node import Node
from models.graphs.interpreter.operators import OPERATORS
from models.graphs.interpreter.plan import opset_of

_LARGEST = 1e4
"""Weights are smaller; masks that are added to scores are larger, and often infinite."""

_FIXED: Mapping[str, frozenset[int]] = {
    # Variances, which a step could make negative.
    "BatchNormalization": frozenset({4}),
    "Clip": frozenset({1, 2}),
    "DequantizeLinear": frozenset({1}),
    "QuantizeLinear": frozenset({1}),
}
"""Places of inputs that are bounds, scales or statistics rather than weights."""


def trainable_names(model: onnx.ModelProto) -> list[str]:
    """Weights and biases by name, in the file's order.

    They are tensors in single precision of two numbers or more, all finite and none above 1e4 in
    size. Single numbers are factors and epsilons of formulas; what is read as a bound, a scale, a
    size or a variance is left out, too.
    """
    fixed = set(_fixed(model))
    return [
        one.name
        for one in model.graph.initializer
        if one.data_type == onnx.TensorProto.FLOAT and one.name not in fixed and _is_weight(one)
    ]


def _is_weight(proto: onnx.TensorProto) -> bool:
    if int(np.prod(tuple(proto.dims))) < 2:
        return False
    # A comparison with NaN is false.
    return bool((np.abs(numpy_helper.to_array(proto)) <= _LARGEST).all())


def _fixed(model: onnx.ModelProto) -> Iterator[str]:
    opset = opset_of(model)
    for proto in model.graph.node:
        operator = OPERATORS.find(proto.op_type, opset)
        places = set(_FIXED.get(proto.op_type, ()))
        if operator is not None:
            places |= set(operator.on_cpu)
        named = enumerate(Node(proto, opset).inputs)
        yield from (name for place, name in named if place in places)
