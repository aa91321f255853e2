"""The highway network, with its batch normalisation folded into a scale and an addend."""

from collections.abc import Mapping
from typing import cast

import torch
from torch import nn

from models.architectures.batch_norm import BatchNorm
from models.architectures.feed_forward import FeedForwardNetwork
from models.architectures.highway import (
    GATES,
    Highway,
    NormalisedHighwayStack,
    NormalisedProduct,
    StackName,
)
from models.exports.onnx.architectures.feed_forward import StackGraph, layer, layers_of, normalise
from models.exports.onnx.graph import Graph
from models.exports.onnx.matrices import Stored, stored_layers
from models.exports.onnx.products import cut, expand, multiply, project


def highway(architecture: Highway) -> StackGraph:
    """`x <- h * tau + x * (1 - tau)`, `h = relu(W_h x + b_h)`, `tau = sigmoid(W_tau x + b_tau)`."""
    return _STACKS[architecture.stack]


def _entry(graph: Graph, _network: FeedForwardNetwork, x: str) -> str:
    return graph.apply("Relu", x)


def _stack(graph: Graph, network: FeedForwardNetwork, x: str) -> str:
    for matrices, bias in layers_of(graph, network):
        h, tau = layer(graph, matrices, bias, x)
        x = _mix(graph, x, h, tau)
    return x


def _normalised_entry(graph: Graph, network: FeedForwardNetwork, x: str) -> str:
    norm = cast(nn.Sequential, network.entry)[0]
    assert isinstance(norm, BatchNorm)
    return graph.apply("Relu", normalise(graph, norm, x, scale=norm.scale, shift=norm.bias))


def _normalised_stack(graph: Graph, network: FeedForwardNetwork, x: str) -> str:
    stack = network.stack
    assert isinstance(stack, NormalisedHighwayStack)
    # Something stands between two thin matrices: no product of them does the same.
    matrices = stored_layers(graph, network.hidden, factored=True)
    layers = zip(stack.products, stack.scale, matrices, network.bias, strict=True)
    for product, scale, matrix, bias in layers:
        assert isinstance(product, NormalisedProduct)
        raw = _product(graph, product, matrix, x)
        h, tau = cut(graph, normalise(graph, product.norm, raw, scale=scale, shift=bias), GATES)
        x = _mix(graph, x, h, tau)
    return x


def _product(graph: Graph, product: NormalisedProduct, matrices: Stored, x: str) -> str:
    """Dropout that is not made up for in training leaves its mean: `1 - rate` times the value."""
    seen = graph.apply("Mul", x, graph.number(1 - product.dropout))
    if product.middle is None:
        return multiply(graph, matrices, seen)
    factors = matrices.factors()
    assert factors is not None
    norm = product.middle.norm
    share = torch.full_like(norm.mean, 1 - product.middle.dropout)
    inner = normalise(graph, norm, project(graph, factors, seen), scale=share, shift=None)
    return expand(graph, factors, inner, seen)


def _mix(graph: Graph, x: str, h: str, tau: str) -> str:
    """`x + tau (relu(h) - x)`."""
    change = graph.apply("Sub", graph.apply("Relu", h), x)
    return graph.apply("Add", x, graph.apply("Mul", graph.apply("Sigmoid", tau), change))


_STACKS: Mapping[StackName, StackGraph] = {
    "plain": StackGraph(_entry, _stack),
    "batch_normalised": StackGraph(_normalised_entry, _normalised_stack),
}
