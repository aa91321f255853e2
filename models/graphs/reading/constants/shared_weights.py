"""Weights that a file holds several times."""

import hashlib
from collections import defaultdict
from typing import TypeAlias

from onnx import GraphProto, ModelProto, numpy_helper

from models.graphs.layers import SMALLEST
from models.graphs.reading.constants.opened_constants import output_names, rename_reads
from models.graphs.reading.tensors import FLOATING
from models.graphs.reading.walking import bodies, captured

_Way: TypeAlias = tuple[str, int, bytes]


def share_equal_weights(model: ModelProto) -> None:
    """Keep one of equal weights that nodes of the top level read in the same way, in place.

    Exporters write the weights of an unrolled loop once for each step. A table that is looked up
    and the same as a matrix stay apart, for each is stored anew by what it reads.
    """
    graph = model.graph
    ways = _ways(graph)
    first: dict[tuple[int, tuple[int, ...], frozenset[_Way], bytes], str] = {}
    renamed: dict[str, str] = {}
    for tensor in graph.initializer:
        shape = tuple(tensor.dims)
        if tensor.data_type not in FLOATING or tensor.name not in ways:
            continue
        value = numpy_helper.to_array(tensor)
        if value.size < SMALLEST:
            continue
        digest = hashlib.sha256(value.tobytes()).digest()
        key = (tensor.data_type, shape, frozenset(ways[tensor.name]), digest)
        if first.setdefault(key, tensor.name) != tensor.name:
            renamed[tensor.name] = first[key]
    if not renamed:
        return
    kept = [tensor for tensor in graph.initializer if tensor.name not in renamed]
    del graph.initializer[:]
    graph.initializer.extend(kept)
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
