"""Which weights of a graph are layers."""

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
import onnx
from onnx import TensorProto, numpy_helper

from models.graphs.layers.added_constants import is_bias_or_mask
from models.graphs.layers.layer import SMALLEST, Layer, Reader
from models.graphs.layers.other_weights import OtherRole, by_first_axis
from models.graphs.layers.role import Element, Role, Use
from models.graphs.layers.roles import role_of

# Names that exporters and onnxruntime make up.
_GENERATED = re.compile(
    r"\d+|onnx::\w*|(?:val|tmp|const|constant)_?\d+|.*_token_\d+|.*::.*|ortshared_.*|.*constant_?folding.*",
    re.IGNORECASE,
)
_ELEMENTS: Mapping[int, Element] = {TensorProto.FLOAT: "float32", TensorProto.FLOAT16: "float16"}
_BITS: Mapping[int, int] = {
    TensorProto.FLOAT: 32,
    TensorProto.FLOAT16: 16,
    TensorProto.INT4: 4,
    TensorProto.UINT4: 4,
}
_INTEGERS = frozenset({TensorProto.INT8, TensorProto.UINT8, TensorProto.INT4, TensorProto.UINT4})
_CONSTANT_INPUTS = 4
"""From this IR version on, a program that runs a graph may replace a weight that is an input."""


def find_layers(model: onnx.ModelProto) -> list[Layer]:
    """The weights of 1,024 numbers or more at a graph's top level, in the order of their nodes.

    The model is checked and its constants are folded. Each has a weight once, however many nodes
    read it. Left out are weights that are also inputs, which may be replaced as the file runs,
    types other than float32, float16 and the integers of quantized operators, and constants that
    are only added, compared or selected, or hold Inf: biases and masks.
    """
    graph = model.graph
    replaceable: set[str] = set()
    if model.ir_version >= _CONSTANT_INPUTS:
        replaceable = {entry.name for entry in graph.input}
    outputs = {entry.name for entry in graph.output}
    used = _uses(graph.node)
    in_bodies = set(_names_in_bodies(graph.node))
    taken: set[str] = set()
    found: list[tuple[tuple[int, int], Layer]] = []
    for tensor in graph.initializer:
        name = tensor.name
        if name in replaceable or name in outputs or not _may_be_layer(tensor):
            continue
        uses = used.get(name, [])
        if not uses and name not in in_bodies:
            continue
        if is_bias_or_mask(name, tensor.dims, graph.node, used, in_bodies):
            continue
        layer = _layer(
            tensor, [(at, place, graph.node[at]) for at, place in uses], name in in_bodies
        )
        if layer is not None:
            first = uses[0] if uses else (len(graph.node), 0)
            found.append((first, layer))
    found.sort(key=lambda entry: entry[0])
    return [_named(layer, at, taken) for (at, _), layer in found]


def _may_be_layer(tensor: TensorProto) -> bool:
    known = tensor.data_type in _ELEMENTS or tensor.data_type in _INTEGERS
    return known and int(np.prod(tensor.dims)) >= SMALLEST


def _layer(
    tensor: TensorProto, uses: Sequence[tuple[int, int, onnx.NodeProto]], in_bodies: bool
) -> Layer | None:
    native = tuple(int(size) for size in tensor.dims)
    readers = tuple(
        Reader(at, place, role_of(Use(node, place, native))) for at, place, node in uses
    )
    role = _common_role([reader.role for reader in readers], native)
    element = _ELEMENTS.get(tensor.data_type)
    # Integers are of interest only where an operator knows them as weights, and floats never there.
    if (element is None) != role.quantized or (role.quantized and len(native) < 2):
        return None
    value = numpy_helper.to_array(tensor)
    if element is not None:
        value = value.astype(np.float32)
        # Only masks may hold it in a file that was read, and rounding would make NaN of it.
        if not np.isfinite(value).all():
            return None
    return Layer(
        name=tensor.name,
        weight=tensor.name,
        operator=uses[0][2].op_type if uses else "body",
        readers=readers,
        role=role,
        matrices=role.arrangement.arranged(value),
        element=element,
        structured=role.structured,
        runs=role.runnable and len(readers) == 1 and not in_bodies,
        stored_bytes=_stored_bytes(tensor),
    )


def _common_role(roles: Sequence[Role], native: tuple[int, ...]) -> Role:
    """The readers' role, if all read the same matrices."""
    if len({(type(role), role.arrangement) for role in roles}) == 1:
        return roles[0]
    return OtherRole(by_first_axis(native))


def _stored_bytes(tensor: TensorProto) -> int:
    numbers = int(np.prod(tensor.dims))
    bits = _BITS.get(tensor.data_type, 8)
    return (numbers * bits + 7) // 8


def _named(layer: Layer, at: int, taken: set[str]) -> Layer:
    """The layer under a name that no other has."""
    name = layer.name
    if _GENERATED.fullmatch(name):
        part = f".{layer.role.part}" if layer.role.part else ""
        name = f"{layer.operator}.{at}{part}"
    while name in taken:
        name += "'"
    taken.add(name)
    return replace(layer, name=name)


def _uses(nodes: Sequence[onnx.NodeProto]) -> dict[str, list[tuple[int, int]]]:
    """The nodes and places at which each value is read."""
    found: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for at, node in enumerate(nodes):
        for place, name in enumerate(node.input):
            found[name].append((at, place))
    return found


def _names_in_bodies(nodes: Sequence[onnx.NodeProto]) -> Iterator[str]:
    """All values that bodies of `If`, `Loop` and `Scan` read, at any depth."""
    for node in nodes:
        for attribute in node.attribute:
            for body in (*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs):
                for inner in body.node:
                    yield from inner.input
                yield from (entry.name for entry in body.output)
                yield from _names_in_bodies(body.node)
