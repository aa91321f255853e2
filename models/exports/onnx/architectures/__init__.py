"""How a model of each architecture is written: `WRITERS`, the registry."""

from collections.abc import Callable, Mapping
from typing import Any

from models.architectures import Architecture, Gru, Highway, Lstm, Mlp, Resnet, Rnn, Urnn
from models.exports.onnx.architectures.feed_forward import StackGraph, write_feed_forward
from models.exports.onnx.architectures.gru import gru
from models.exports.onnx.architectures.highway import highway
from models.exports.onnx.architectures.lstm import lstm
from models.exports.onnx.architectures.mlp import mlp
from models.exports.onnx.architectures.recurrent import CellGraph, Ends, write_recurrent
from models.exports.onnx.architectures.resnet import resnet
from models.exports.onnx.architectures.rnn import rnn
from models.exports.onnx.architectures.urnn import urnn
from models.exports.onnx.graph import Graph

__all__ = ["WRITERS", "Ends", "Write"]

Write = Callable[[Graph, Any, Any, str, Ends], tuple[str, list[str]]]
"""Writes a network `[B, T, input_size]` -> its output and its last state, none if it has no state;
takes graph, architecture, network, x and what the network is given beside it."""


def _cells(of: Callable[[Any], CellGraph]) -> Write:
    return lambda graph, architecture, network, x, ends: write_recurrent(
        graph, of(architecture), network, x, ends
    )


def _layers(of: Callable[[Any], StackGraph]) -> Write:
    return lambda graph, architecture, network, x, _ends: (
        write_feed_forward(graph, of(architecture), network, x),
        [],
    )


WRITERS: Mapping[type[Architecture], Write] = {
    Rnn: _cells(rnn),
    Lstm: _cells(lstm),
    Gru: _cells(gru),
    Urnn: _cells(urnn),
    Mlp: _layers(mlp),
    Resnet: _layers(resnet),
    Highway: _layers(highway),
}
"""The registry: how a model of each architecture is written."""
