"""The long short-term memory: a standard node, but with a peephole."""

from collections.abc import Sequence

from models.architectures.lstm import Lstm, LstmCell
from models.exports.onnx.architectures.recurrent import CellGraph, StandardNode, State
from models.exports.onnx.graph import Graph
from models.exports.onnx.matrices import Stored
from models.exports.onnx.products import affine, multiply_add

_INPUT, _FORGET, _CANDIDATE, _OUTPUT = range(4)


def lstm(architecture: Lstm) -> CellGraph:
    """`c_t = f * c_{t-1} + i * z`, `h_t = o * tanh(c_t)`; ONNX has the order i, o, f, z.

    ONNX's own peephole is a vector for each gate, ours a matrix for one.
    """
    standard = StandardNode("LSTM", (_INPUT, _OUTPUT, _FORGET, _CANDIDATE))
    return CellGraph(_step, None if architecture.peephole else standard)


def _step(
    body: Graph, matrices: Stored, cell: LstmCell, before: State, addends: Sequence[str]
) -> State:
    state, memory = before
    enter, forget, candidate, leave = multiply_add(body, matrices, state, addends)
    kept = body.apply("Mul", body.apply("Sigmoid", forget), memory)
    new = body.apply("Mul", body.apply("Sigmoid", enter), body.apply("Tanh", candidate))
    memory = body.apply("Add", kept, new)
    if cell.peephole is not None:
        leave = body.apply("Add", leave, affine(body, cell.peephole, memory))
    shown = body.apply("Mul", body.apply("Sigmoid", leave), body.apply("Tanh", memory))
    return [shown, memory]
