"""Feed-forward networks: the flattened sequence, the input matrix, the layers and the readout."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from torch import Tensor

from models.architectures.batch_norm import EPSILON, BatchNorm
from models.architectures.feed_forward import FeedForwardNetwork
from models.exports.onnx.graph import Graph
from models.exports.onnx.matrices import Stored, stored_layers
from models.exports.onnx.products import affine, multiply_add

Write = Callable[[Graph, FeedForwardNetwork, str], str]


@dataclass(frozen=True)
class StackGraph:
    """How what stands between input matrix and readout is written, `[B, n]` -> `[B, n]` each."""

    entry: Write
    stack: Write


def write_feed_forward(graph: Graph, parts: StackGraph, network: FeedForwardNetwork, x: str) -> str:
    """`[B, T, input_size]` -> `[B, output_size]`."""
    inner = affine(graph, network.input, graph.apply("Flatten", x, axis=1))  # pyright: ignore[reportArgumentType] -- the network takes any module
    inner = parts.stack(graph, network, parts.entry(graph, network, inner))
    return affine(graph, network.readout, inner)


def layers_of(graph: Graph, network: FeedForwardNetwork) -> Iterator[tuple[Stored, Tensor]]:
    """Each layer's matrices and the bias `[gates*n]`."""
    return zip(stored_layers(graph, network.hidden), network.bias, strict=True)


def layer(graph: Graph, matrices: Stored, bias: Tensor, x: str) -> list[str]:
    """`W_g x + b_g` for each gate."""
    addends = [graph.constant(part) for part in bias.reshape(matrices.shape[0], -1)]
    return multiply_add(graph, matrices, x, addends)


def normalise(
    graph: Graph, norm: BatchNorm, x: str, *, scale: Tensor | None, shift: Tensor | None
) -> str:
    """Batch normalisation with its running statistics, times `scale` plus `shift`: two vectors."""
    factor = 1 / (norm.std + EPSILON)
    if scale is not None:
        factor = factor * scale
    addend = -norm.mean * factor
    if shift is not None:
        addend = addend + shift
    scaled = graph.apply("Mul", x, graph.constant(factor))
    return graph.apply("Add", scaled, graph.constant(addend))
