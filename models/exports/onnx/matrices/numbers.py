"""Parameters in a file: numbers of single precision, or integers with their scales.

Integers are cast and multiplied by nodes that runtimes compute when they load a file. Operators
made for it, `DequantizeLinear`, are left for the time of each call by onnxruntime; they are
written where they are asked for, for runtimes that look for them.
"""

import numpy as np
import torch
from torch import Tensor, nn

from models.exports.onnx.graph import Graph
from models.exports.onnx.matrices.arithmetic import DOUBLE, FLOAT, INTEGER_32, cast, part
from models.math.weight_norm import NormalisedRows, plain_rows
from models.quantization import Encoded, encode
from models.quantization.packing import pack_halves

_SHORTEST = 1e-30
"""Divides a row of zeros."""


def parameter(graph: Graph, owner: nn.Module, attribute: str, *, element: int = FLOAT) -> str:
    """A parameter of a module, of its own shape; of rows that are normalised, what they then are.

    Raises:
        RoundingError: the model was to be rounded, and is not.
    """
    value: Tensor | NormalisedRows = getattr(owner, attribute)
    if graph.root.bits is None:
        number = graph.constant(plain_rows(value))
        return number if element == FLOAT else cast(graph, number, element)
    if isinstance(value, NormalisedRows):
        return cast(graph, _normalised(graph, value), element)
    found = encode(owner, attribute, graph.root.bits)
    if found is None:
        return cast(graph, graph.constant(value), element)
    return _decoded(graph, found, element)


def _normalised(graph: Graph, rows: NormalisedRows) -> str:
    """`g v / |v|` for each row, in double precision."""
    direction = parameter(graph, rows, "direction", element=DOUBLE)
    squares = graph.apply("Mul", direction, direction)
    squares = graph.apply("ReduceSum", squares, graph.integers(-1), keepdims=1)
    length = graph.apply("Max", graph.apply("Sqrt", squares), graph.double(_SHORTEST))
    unit = graph.apply("Div", direction, length)
    if rows.gain is None:
        return unit
    gain = parameter(graph, rows, "gain", element=DOUBLE)
    return graph.apply("Mul", unit, graph.apply("Unsqueeze", gain, graph.integers(-1)))


def _decoded(graph: Graph, found: Encoded, element: int) -> str:
    """`q * scale`, or `q * unit` in double precision, which the parameter is rounded of."""
    if graph.root.dequantizes and found.scale is not None:
        number = _dequantized(graph, found, found.scale)
        return number if element == FLOAT else cast(graph, number, element)
    stored = graph.array(found.stored().cpu().numpy(), shared=False)
    integers = stored if found.bits > 4 else _unpacked(graph, stored, found)
    if found.scale is not None:
        scale = cast(graph, graph.brain_floats(found.scale))
        return cast(graph, graph.apply("Mul", cast(graph, integers), scale), element)
    exact = graph.apply("Mul", cast(graph, integers, DOUBLE), graph.double(found.layout.unit))
    return cast(graph, exact, element)


def _dequantized(graph: Graph, found: Encoded, scale: Tensor) -> str:
    """`DequantizeLinear` of a table whose rows are what shares a scale."""
    shape = found.layout.shape
    if not found.integers.numel():
        return graph.constant(torch.zeros(shape))
    # Scales are 1 in the dimension that their numbers lie along.
    along = next((place for place, n in enumerate(scale.shape) if n == 1 != shape[place]), -1)
    rows = found.integers.movedim(along, -1)
    table = rows.reshape(-1, rows.shape[-1]).contiguous()
    if found.bits == 4:
        stored = graph.halves(pack_halves(table), table.shape)
    else:
        stored = graph.array(table.cpu().numpy(), shared=False)
    scales = graph.constant(scale.movedim(along, -1).flatten())
    value = graph.apply("DequantizeLinear", stored, scales, axis=0)
    value = graph.apply("Reshape", value, graph.integers(*rows.shape))
    if along in (-1, len(shape) - 1):
        return value
    back = [*range(along), len(shape) - 1, *range(along, len(shape) - 1)]
    return graph.apply("Transpose", value, perm=back)


def _unpacked(graph: Graph, packed: str, found: Encoded) -> str:
    """Integers of -8..7, two in a byte, the first in its low half."""
    shape = found.layout.shape
    count, sixteen, eight = int(np.prod(shape)), *(_whole(graph, value) for value in (16, 8))
    both = cast(graph, packed, INTEGER_32)
    axis = graph.integers(1)
    halves = (
        graph.apply("Unsqueeze", graph.apply(operator, both, sixteen), axis)
        for operator in ("Mod", "Div")
    )
    flat = graph.apply("Reshape", graph.apply("Concat", *halves, axis=1), graph.integers(-1))
    if count % 2:
        flat = part(graph, flat, 0, count)
    # From 0..15 to two's complement.
    turned = graph.apply("Mod", graph.apply("Add", flat, eight), sixteen)
    return graph.apply("Reshape", graph.apply("Sub", turned, eight), graph.integers(*shape))


def _whole(graph: Graph, value: int) -> str:
    return graph.array(np.array(value, dtype=np.int32))
