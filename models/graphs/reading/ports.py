"""Inputs and outputs of a graph: their types, and which of them are asked for."""

from onnx import GraphProto, ValueInfoProto

from models.errors import GraphRefused
from models.graphs.documents import GraphLimits
from models.graphs.reading.naming import named_twice
from models.graphs.reading.sentences import quoted
from models.graphs.reading.tensors import NAMES, element_name
from models.graphs.reading.walking import all_graphs

_LARGEST_SIZE = 2**31
_MOST_DIMENSIONS = 16
_KINDS = {
    "sequence_type": "a sequence",
    "optional_type": "an optional",
    "map_type": "a map",
    "sparse_tensor_type": "a sparse tensor",
}


def without_defaults(graph: GraphProto) -> None:
    """Leave only inputs that have to be given; those with an initializer become constants."""
    constants = {tensor.name for tensor in graph.initializer}
    kept = [port for port in graph.input if port.name not in constants]
    if len(kept) == len(graph.input):
        return
    copies = [ValueInfoProto.FromString(port.SerializeToString()) for port in kept]
    del graph.input[:]
    graph.input.extend(copies)


def refuse_untyped(graph: GraphProto, limits: GraphLimits) -> None:
    """Look at inputs and outputs of the whole graph, and at those of bodies as far as they say.

    Raises:
        GraphRefused: there are too many, one is no tensor of a type that is read, a size is
            impossible, or an output stands there twice.
    """
    ports = len(graph.input) + len(graph.output)
    if ports > limits.ports:
        raise GraphRefused(f"the model has {ports} inputs and outputs; allowed are {limits.ports}")
    for port in graph.input:
        _refuse_port("input", port, required=True)
    for port in graph.output:
        _refuse_port("output", port, required=True)
    twice = named_twice(graph.output)
    if twice is not None:
        raise GraphRefused(f"the output {quoted(twice)} stands there twice")
    for body in all_graphs(graph):
        for port in (*body.input, *body.output):
            _refuse_port("input or output of a body", port, required=False)


def _refuse_port(what: str, port: ValueInfoProto, *, required: bool) -> None:
    kind = port.type.WhichOneof("value")
    name = f"the {what} {quoted(port.name)}"
    if kind is None or (kind == "tensor_type" and not port.type.tensor_type.elem_type):
        if required:
            raise GraphRefused(f"{name} has no type")
        return
    if kind != "tensor_type":
        raise GraphRefused(f"{name} is {_KINDS.get(kind, kind)}; only tensors are supported")
    element = port.type.tensor_type.elem_type
    if element not in NAMES:
        raise GraphRefused(
            f"{name} has elements of type {element_name(element)}; allowed are "
            f"{', '.join(NAMES.values())}"
        )
    if len(port.type.tensor_type.shape.dim) > _MOST_DIMENSIONS:
        raise GraphRefused(f"{name} has more than {_MOST_DIMENSIONS} dimensions")
    if any(size.dim_value >= _LARGEST_SIZE for size in port.type.tensor_type.shape.dim):
        raise GraphRefused(f"{name} has a size of {_LARGEST_SIZE} or more")
