"""A trained model as one ONNX file."""

from collections.abc import Callable, Mapping
from typing import Any

import onnx
import torch
from onnx import helper
from torch import nn

from models.architectures import (
    Architecture,
    Gru,
    Highway,
    Lstm,
    Mlp,
    Resnet,
    Rnn,
    Urnn,
)
from models.errors import ExportError
from models.exports.comparison import in_double_precision
from models.exports.onnx.feed_forward import StackGraph, write_feed_forward
from models.exports.onnx.graph import IR_VERSION, OPSET, Dimension, Graph
from models.exports.onnx.gru import gru
from models.exports.onnx.highway import highway
from models.exports.onnx.lstm import lstm
from models.exports.onnx.mlp import mlp
from models.exports.onnx.recurrent import CellGraph, write_recurrent
from models.exports.onnx.resnet import resnet
from models.exports.onnx.rnn import rnn
from models.exports.onnx.urnn import urnn
from models.model import ModelSpec
from models.spec import kind_of

FORMAT = "reflectory.onnx.1"
INPUT, OUTPUT = "input", "output"

Write = Callable[[Graph, Any, Any, str], str]
"""Writes a network `[B, T, input_size]` -> its output; takes graph, architecture, network, x."""


def export(network: nn.Module, spec: ModelSpec, *, extra: Mapping[str, str] | None = None) -> bytes:
    """The model in evaluation, as an ONNX file of opset 17 in single precision.

    It maps `input` `[batch, steps, input_size]`, or tokens `[batch, steps]`, to `output`, in the
    shape that the model gives.
    Batches may have any size, and sequences any length where the architecture takes any. Matrices
    stand in it in the form in which the model applies them; what is made of the parameters for that
    is made in double precision. The metadata hold the format, the spec as JSON, and `extra`.

    Whoever gives the file to others runs `models.exports.onnx.verify` on it first.

    Raises:
        ExportError: nothing writes such an architecture or such matrices, or the weights are more
            than one file holds.
    """
    graph = Graph()
    architecture = spec.architecture
    write = WRITERS.get(type(architecture))
    if write is None:
        written = ", ".join(sorted(kind_of(variant) for variant in WRITERS))
        raise ExportError(f"there is no ONNX writer for {architecture.kind}; written are {written}")
    with torch.no_grad():
        exact = in_double_precision(network, spec)
        output = write(graph, architecture, exact, INPUT)
    graph.rename(output, OUTPUT)
    model = helper.make_model(
        _described(graph, spec),
        producer_name="reflectory",
        opset_imports=[helper.make_opsetid("", OPSET)],
        ir_version=IR_VERSION,
        doc_string=f"{architecture.title}, {spec.parametrization.title}",
    )
    metadata = {"format": FORMAT, "spec": spec.model_dump_json(), **(extra or {})}
    helper.set_model_props(model, metadata)
    return model.SerializeToString(deterministic=True)


def _described(graph: Graph, spec: ModelSpec) -> onnx.GraphProto:
    signature = spec.signature
    steps: Dimension = "steps" if spec.architecture.any_length else signature.sequence_length
    answers: list[Dimension] = [steps] if signature.output_steps == "every" else []
    features: list[Dimension] = [signature.input_size] if signature.vocabulary is None else []
    return graph.described(
        spec.architecture.kind,
        inputs=[(INPUT, ["batch", steps, *features])],
        outputs=[(OUTPUT, ["batch", *answers, signature.output_size])],
        reads_tokens=signature.vocabulary is not None,
    )


def _cells(of: Callable[[Any], CellGraph]) -> Write:
    return lambda graph, architecture, network, x: write_recurrent(
        graph, of(architecture), network, x
    )


def _layers(of: Callable[[Any], StackGraph]) -> Write:
    return lambda graph, architecture, network, x: write_feed_forward(
        graph, of(architecture), network, x
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
