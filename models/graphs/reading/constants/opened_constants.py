"""Constants that nodes hold, turn or hand on, as initializers; without a runtime."""

from collections import defaultdict
from collections.abc import Callable, Container, Mapping
from typing import TypeAlias

import numpy as np
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, helper, numpy_helper

from models.graphs.reading.walking import all_graphs, bodies, captured

_Made: TypeAlias = "TensorProto | None"
_ROUNDS = 4
"""How often nodes of one kind may follow those of another; no exporter writes more."""


def opened(model: ModelProto) -> ModelProto:
    """The model with `Constant`, `Identity`, `Transpose` and `Cast` of weights computed.

    Those at the top level alone. The answers are the same to the bit, and the file does not grow: a
    weight that others read as it was stays behind its node, and so does one that would take more
    bytes as another type. Equal nodes that read the same weight become one initializer.

    Args:
        model: as `read_graph` gives it.
    """
    made = ModelProto()
    made.CopyFrom(model)
    for _ in range(_ROUNDS):
        before = len(made.graph.node)
        # First all get their last names: who reads a weight besides is known only then.
        _open(made.graph, _HOLDING)
        _open(made.graph, _CHANGING)
        if len(made.graph.node) == before:
            break
    return made


def rename_reads(graph: GraphProto, renamed: Mapping[str, str]) -> None:
    """Let the nodes of a graph and of bodies in it read values under other names.

    A body cannot define a name again that is visible around it.
    """
    for node in graph.node:
        for place, name in enumerate(node.input):
            if name in renamed:
                node.input[place] = renamed[name]
        for body in bodies(node):
            rename_reads(body, renamed)


def output_names(graph: GraphProto) -> set[str]:
    """Names of outputs, also of bodies: these are known by them."""
    return {port.name for part in all_graphs(graph) for port in part.output}


def drop_initializers(graph: GraphProto, names: Container[str]) -> None:
    """Leave out the initializers of these names, without copying the others."""
    for place in reversed(range(len(graph.initializer))):
        if graph.initializer[place].name in names:
            del graph.initializer[place]


def _held(node: NodeProto, source: TensorProto | None) -> _Made:
    del source
    held = [entry.t for entry in node.attribute if entry.name == "value" and entry.HasField("t")]
    return held[0] if held else None


def _handed_on(node: NodeProto, source: TensorProto | None) -> _Made:
    del node
    return source


def _turned(node: NodeProto, source: TensorProto | None) -> _Made:
    if source is None or source.data_type not in _TURNED:
        return None
    order = [axis for entry in node.attribute if entry.name == "perm" for axis in entry.ints]
    if order and sorted(order) != [*range(len(source.dims))]:
        return None
    turned = numpy_helper.to_array(source).transpose(order or None)
    # A number that is made contiguous would get a dimension; a copy in this order does not.
    return numpy_helper.from_array(np.array(turned, order="C"))


def _cast(node: NodeProto, source: TensorProto | None) -> _Made:
    """From double precision alone: halves would take twice as many bytes."""
    to = [helper.get_attribute_value(entry) for entry in node.attribute if entry.name == "to"]
    if source is None or source.data_type != TensorProto.DOUBLE or to != [TensorProto.FLOAT]:
        return None
    with np.errstate(over="ignore"):
        value = numpy_helper.to_array(source).astype(np.float32)
    return numpy_helper.from_array(value) if np.isfinite(value).all() else None


_TURNED = frozenset({TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.DOUBLE})
"""Types of weights."""

_Openers: TypeAlias = Mapping[str, Callable[[NodeProto, "TensorProto | None"], _Made]]
_HOLDING: _Openers = {"Constant": _held, "Identity": _handed_on}
"""Operators after which a weight is what it was."""
_CHANGING: _Openers = {"Transpose": _turned, "Cast": _cast}


def _open(graph: GraphProto, openers: _Openers) -> None:
    constants = {tensor.name: tensor for tensor in graph.initializer}
    alone = _read_in_one_way(graph)
    outputs = output_names(graph)
    renamed: dict[str, str] = {}
    made_of: dict[str, str] = {}
    """What was made of a weight; it takes that one's place."""
    nodes: list[NodeProto] = []
    for node in graph.node:
        source = renamed.get(node.input[0], node.input[0]) if node.input else ""
        changes = node.op_type in _CHANGING
        if (
            node.op_type not in openers
            or node.output[0] in outputs
            or (changes and source not in alone)
        ):
            nodes.append(node)
            continue
        if source in made_of:
            renamed[node.output[0]] = made_of[source]
            continue
        found = openers[node.op_type](node, constants.get(source))
        if found is None:
            nodes.append(node)
        elif found is constants.get(source):
            renamed[node.output[0]] = source
        else:
            made = graph.initializer.add()
            made.CopyFrom(found)
            made.name = node.output[0]
            constants[made.name] = made
            if changes:
                made_of[source] = node.output[0]
    if len(nodes) == len(graph.node):
        return
    del graph.node[:]
    graph.node.extend(nodes)
    drop_initializers(graph, made_of)
    rename_reads(graph, renamed)


def _read_in_one_way(graph: GraphProto) -> set[str]:
    """Names that are read by equal nodes alone, none of which makes an output."""
    outputs = output_names(graph)
    ways: dict[str, set[bytes]] = defaultdict(set)
    for node in graph.node:
        way = _way(node)
        for name in node.input:
            ways[name].add(way)
    left = set(outputs)
    for node in graph.node:
        if outputs.intersection(node.output):
            left.update(node.input)
        for body in bodies(node):
            left.update(captured(body))
    return {name for name, own in ways.items() if len(own) == 1 and name not in left}


def _way(node: NodeProto) -> bytes:
    """What two nodes have in common that compute the same of one input."""
    bare = NodeProto(op_type=node.op_type, attribute=node.attribute)
    return bare.SerializeToString(deterministic=True)
