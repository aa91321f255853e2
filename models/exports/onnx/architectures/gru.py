"""The gated recurrent unit; ONNX has its gates in our order, and a node for either reset."""

from collections.abc import Mapping
from typing import Any

from models.architectures.gru import Gru, GruCell, Reset
from models.exports.onnx.architectures.recurrent import CellGraph, StandardNode, State, Step
from models.exports.onnx.graph import Graph
from models.exports.onnx.matrices import Stored
from models.exports.onnx.products import cut, multiply, multiply_add


def gru(architecture: Gru) -> CellGraph:
    """`h_t = u * h_{t-1} + (1 - u) * q`: ONNX's z is the gate u that keeps."""
    attributes = {"linear_before_reset": int(architecture.reset == "after")}
    return CellGraph(_STEPS[architecture.reset], StandardNode("GRU", (0, 1, 2), attributes))


def _reset_before(body: Graph, matrices: Stored, _cell: Any, before: State, addend: str) -> State:
    (state,) = before
    update_addend, reset_addend, candidate_addend = cut(body, addend, 3)
    gate_addend = body.apply("Concat", update_addend, reset_addend, axis=-1)
    update, reset = multiply_add(body, matrices.select(0, 2), state, gate_addend)
    kept = body.apply("Mul", body.apply("Sigmoid", reset), state)
    (inner,) = multiply_add(body, matrices.select(2, 3), kept, candidate_addend)
    return [_mix(body, state, update, inner)]


def _reset_after(body: Graph, matrices: Stored, cell: GruCell, before: State, addend: str) -> State:
    (state,) = before
    update_addend, reset_addend, candidate_addend = cut(body, addend, 3)
    update, reset, inner = cut(body, multiply(body, matrices, state), 3)
    update = body.apply("Add", update, update_addend)
    if cell.candidate_bias is not None:
        inner = body.apply("Add", inner, body.constant(cell.candidate_bias))
    gate = body.apply("Sigmoid", body.apply("Add", reset, reset_addend))
    inner = body.apply("Add", body.apply("Mul", gate, inner), candidate_addend)
    return [_mix(body, state, update, inner)]


def _mix(body: Graph, state: str, update: str, inner: str) -> str:
    """`u h + (1 - u) q`, as `q + u (h - q)`."""
    candidate = body.apply("Tanh", inner)
    way = body.apply("Mul", body.apply("Sigmoid", update), body.apply("Sub", state, candidate))
    return body.apply("Add", candidate, way)


_STEPS: Mapping[Reset, Step] = {"before": _reset_before, "after": _reset_after}
