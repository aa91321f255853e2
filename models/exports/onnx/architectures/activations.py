"""The activations of `models.math.activations` as operators."""

from collections.abc import Callable, Mapping

from models.exports.onnx.graph import Graph
from models.math.activations import Activation

Write = Callable[[Graph, str, float], str]


def activate(graph: Graph, name: Activation, value: str, *, leak: float) -> str:
    """The activation of that name; `leak` is the slope of leaky_relu below 0."""
    return ACTIVATIONS[name](graph, value, leak)


ACTIVATIONS: Mapping[Activation, Write] = {
    "leaky_relu": lambda graph, value, leak: graph.apply("LeakyRelu", value, alpha=leak),
    "abs": lambda graph, value, _leak: graph.apply("Abs", value),
    "relu": lambda graph, value, _leak: graph.apply("Relu", value),
    "tanh": lambda graph, value, _leak: graph.apply("Tanh", value),
    "identity": lambda _graph, value, _leak: value,
}
