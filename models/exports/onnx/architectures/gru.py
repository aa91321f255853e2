"""The gated recurrent unit; ONNX has its gates in our order, and a node for either reset."""

from collections.abc import Mapping, Sequence
from typing import Any

from models.architectures.gru import Gru, GruCell, Reset
from models.exports.onnx.architectures.recurrent import CellGraph, StandardNode, State, Step
from models.exports.onnx.graph import Graph
from models.exports.onnx.matrices import Stored
from models.exports.onnx.products import multiply_add


def gru(architecture: Gru) -> CellGraph:
    """`h_t = u * h_{t-1} + (1 - u) * q`: ONNX's z is the gate u that keeps."""
    attributes = {"linear_before_reset": int(architecture.reset == "after")}
    return CellGraph(_STEPS[architecture.reset], StandardNode("GRU", (0, 1, 2), attributes))


def _reset_before(
    body: Graph, matrices: Stored, _cell: Any, before: State, addends: Sequence[str]
) -> State:
    (state,) = before
    update, reset = multiply_add(body, matrices.select(0, 2), state, addends[:2])
    kept = body.apply("Mul", body.apply("Sigmoid", reset), state)
    (inner,) = multiply_add(body, matrices.select(2, 3), kept, addends[2:])
    return [_mix(body, state, update, inner)]


def _reset_after(
    body: Graph, matrices: Stored, cell: GruCell, before: State, addends: Sequence[str]
) -> State:
    (state,) = before
    # What is reset is the product alone, and its own bias.
    bias = cell.candidate_bias
    own = body.number(0.0) if bias is None else body.constant(bias)
    update, reset, inner = multiply_add(body, matrices, state, [*addends[:2], own])
    inner = body.apply("Mul", body.apply("Sigmoid", reset), inner)
    inner = body.apply("Add", inner, addends[2])
    return [_mix(body, state, update, inner)]


def _mix(body: Graph, state: str, update: str, inner: str) -> str:
    """`u h + (1 - u) q`, as `q + u (h - q)`."""
    candidate = body.apply("Tanh", inner)
    way = body.apply("Mul", body.apply("Sigmoid", update), body.apply("Sub", state, candidate))
    return body.apply("Add", candidate, way)


_STEPS: Mapping[Reset, Step] = {"before": _reset_before, "after": _reset_after}
