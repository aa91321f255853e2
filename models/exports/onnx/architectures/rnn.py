"""The single-matrix recurrent network: a standard node, but for the activation abs."""

from collections.abc import Callable, Mapping, Sequence

from models.architectures.rnn import Rnn, RnnCell
from models.exports.onnx.architectures.activations import activate
from models.exports.onnx.architectures.recurrent import CellGraph, StandardNode, State
from models.exports.onnx.graph import Graph
from models.exports.onnx.matrices import Stored
from models.exports.onnx.products import multiply_add
from models.math.activations import Activation


def rnn(architecture: Rnn) -> CellGraph:
    """`h_t = phi(W h_{t-1} + M x_t + b)`."""

    def step(
        body: Graph, matrices: Stored, _cell: RnnCell, before: State, addends: Sequence[str]
    ) -> State:
        (state,) = before
        (inner,) = multiply_add(body, matrices, state, addends)
        return [activate(body, architecture.activation, inner, leak=architecture.leak)]

    standard = _STANDARD.get(architecture.activation)
    return CellGraph(step, None if standard is None else standard(architecture.leak))


def _node(activation: str, **attributes: list[float]) -> StandardNode:
    return StandardNode("RNN", (0,), {"activations": [activation], **attributes})


_STANDARD: Mapping[Activation, Callable[[float], StandardNode]] = {
    "tanh": lambda _leak: _node("Tanh"),
    "relu": lambda _leak: _node("Relu"),
    "leaky_relu": lambda leak: _node("LeakyRelu", activation_alpha=[leak]),
    "identity": lambda _leak: _node("Affine", activation_alpha=[1.0], activation_beta=[0.0]),
}
