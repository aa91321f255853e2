"""The residual network."""

from models.architectures.feed_forward import FeedForwardNetwork
from models.architectures.resnet import Resnet
from models.exports.onnx.architectures.feed_forward import StackGraph, layer, layers_of
from models.exports.onnx.architectures.mlp import activation
from models.exports.onnx.graph import Graph


def resnet(architecture: Resnet) -> StackGraph:
    """`x <- f(x + W_b f(W_a x + b_a) + b_b)`."""
    entry = activation(architecture)

    def stack(graph: Graph, network: FeedForwardNetwork, x: str) -> str:
        layers = list(layers_of(graph, network))
        for (first, b_a), (second, b_b) in zip(layers[::2], layers[1::2], strict=True):
            (inner,) = layer(graph, first, b_a, x)
            (update,) = layer(graph, second, b_b, entry(graph, network, inner))
            x = entry(graph, network, graph.apply("Add", x, update))
        return x

    return StackGraph(entry, stack)
