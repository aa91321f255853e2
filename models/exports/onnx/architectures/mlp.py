"""The multi-layer perceptron, and what it shares with the residual network."""

from models.architectures.feed_forward import FeedForwardNetwork, Perceptron
from models.architectures.mlp import Mlp
from models.exports.onnx.architectures.activations import activate
from models.exports.onnx.architectures.feed_forward import StackGraph, Write, layer, layers_of
from models.exports.onnx.graph import Graph


def mlp(architecture: Mlp) -> StackGraph:
    """`x_l = f(W_l x_{l-1} + b_l)`."""
    entry = activation(architecture)

    def stack(graph: Graph, network: FeedForwardNetwork, x: str) -> str:
        for matrices, bias in layers_of(graph, network):
            (inner,) = layer(graph, matrices, bias, x)
            x = entry(graph, network, inner)
        return x

    return StackGraph(entry, stack)


def activation(architecture: Perceptron) -> Write:
    """The activation of all layers, which stands after the input matrix too."""

    def write(graph: Graph, _network: FeedForwardNetwork, x: str) -> str:
        return activate(graph, architecture.activation, x, leak=architecture.leak)

    return write
