"""The unitary recurrent network, on states kept as `(re | im)`."""

from collections.abc import Sequence

from models.architectures.urnn import Urnn, UrnnCell
from models.exports.onnx.architectures.recurrent import CellGraph, State
from models.exports.onnx.graph import Graph
from models.exports.onnx.matrices import Stored
from models.exports.onnx.products import cut, multiply_add


def urnn(_architecture: Urnn) -> CellGraph:
    """`z_t = rescale(W z_{t-1} + V x_t)`, `rescale(z) = z max(|z| + b, 0) / (|z| + 1e-5)`."""
    return CellGraph(_step)


def _step(
    body: Graph, matrices: Stored, cell: UrnnCell, before: State, addends: Sequence[str]
) -> State:
    (state,) = before
    (inner,) = multiply_add(body, matrices, state, addends)
    parts = cut(body, inner, 2)
    real, imaginary = (body.apply("Mul", part, part) for part in parts)
    modulus = body.apply("Sqrt", body.apply("Add", real, imaginary))
    grown = body.apply("Relu", body.apply("Add", modulus, body.constant(cell.bias)))
    floor = body.number(1e-5)
    scale = body.apply("Div", grown, body.apply("Add", modulus, floor))
    return [body.apply("Concat", *(body.apply("Mul", part, scale) for part in parts), axis=-1)]
