"""Weights that a file holds several times."""

import hashlib
import math
from collections import defaultdict
from typing import TypeAlias

from onnx import GraphProto, ModelProto, NodeProto, TensorProto, numpy_helper

from models.graphs.layers import SMALLEST
from models.graphs.reading.constants.halves import HANDS_ON
from models.graphs.reading.constants.opened_constants import (
    drop_initializers,
    output_names,
    rename_reads,
)
from models.graphs.reading.tensors import FLOATING
from models.graphs.reading.walking import bodies, captured

_Way: TypeAlias = tuple[str, int, bytes]


def share_turned_weights(made: ModelProto, model: ModelProto) -> None:
    """Keep one of weights that `made` has as they were and turned, where `model` has a node for it.

    Networks of tokens may give their answers by the table in which they look up what they read.
    The runtime makes a second table of it, of as many bytes, that no training would keep the same.
    """
    graph = made.graph
    held = {tensor.name: math.prod(tensor.dims) for tensor in graph.initializer}
    outputs = output_names(graph)
    same: dict[str, str] = {}
    back: list[NodeProto] = []
    for node in model.graph.node:
        if node.op_type not in HANDS_ON:
            continue
        read, name = [same.get(one, one) for one in node.input], node.output[0]
        if node.op_type == "Identity":
            same[name] = read[0]
        elif held.get(name, 0) >= SMALLEST and name not in outputs and held.keys() >= set(read):
            turning = NodeProto()
            turning.CopyFrom(node)
            turning.input[:] = read
            back.append(turning)
    if not back:
        return
    drop_initializers(graph, {node.output[0] for node in back})
    nodes = [*back, *graph.node]
    del graph.node[:]
    graph.node.extend(nodes)


def share_equal_weights(model: ModelProto) -> None:
    """Keep one of equal weights that nodes of the top level read in the same way, in place.

    Exporters write the weights of an unrolled loop once for each step. A table that is looked up
    and the same as a matrix stay apart, for each is stored anew by what it reads.
    """
    graph = model.graph
    ways = _ways(graph)
    alike: dict[tuple[int, tuple[int, ...], frozenset[_Way]], list[TensorProto]] = defaultdict(list)
    for tensor in graph.initializer:
        shape = tuple(tensor.dims)
        if tensor.data_type in FLOATING and tensor.name in ways and math.prod(shape) >= SMALLEST:
            alike[tensor.data_type, shape, frozenset(ways[tensor.name])].append(tensor)
    renamed: dict[str, str] = {}
    for tensors in alike.values():
        first: dict[bytes, str] = {}
        # A weight of its own shape is not looked at.
        for tensor in tensors if len(tensors) > 1 else ():
            digest = hashlib.sha256(numpy_helper.to_array(tensor).tobytes()).digest()
            if first.setdefault(digest, tensor.name) != tensor.name:
                renamed[tensor.name] = first[digest]
    if not renamed:
        return
    drop_initializers(graph, renamed)
    rename_reads(graph, renamed)


def _ways(graph: GraphProto) -> dict[str, set[_Way]]:
    """How nodes read each value, of those that no body reads and that are no outputs."""
    found: dict[str, set[_Way]] = defaultdict(set)
    left = output_names(graph)
    for node in graph.node:
        attributes = b"".join(
            sorted(entry.SerializeToString(deterministic=True) for entry in node.attribute)
        )
        for place, name in enumerate(node.input):
            found[name].add((node.op_type, place, attributes))
        for body in bodies(node):
            left.update(captured(body))
    return {name: ways for name, ways in found.items() if name not in left}
