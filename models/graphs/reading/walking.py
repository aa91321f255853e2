"""Graphs within graphs: the bodies of `If`, `Loop` and `Scan`, and the tensors in nodes."""

from collections.abc import Iterator, Mapping

from onnx import GraphProto, NodeProto, TensorProto


def all_graphs(graph: GraphProto) -> Iterator[GraphProto]:
    """The graph, then the bodies in its nodes, and theirs; protobuf allows about 30 levels."""
    yield graph
    for node in graph.node:
        for body in bodies(node):
            yield from all_graphs(body)


def bodies(node: NodeProto) -> Iterator[GraphProto]:
    """The graphs that a node holds itself."""
    for attribute in node.attribute:
        if attribute.HasField("g"):
            yield attribute.g
        yield from attribute.graphs


def own_tensors(graph: GraphProto) -> Iterator[tuple[str, TensorProto]]:
    """Name and tensor of initializers and of nodes' attributes, without those of bodies.

    A tensor of an attribute goes by the name of the node's first output.
    """
    for tensor in graph.initializer:
        yield tensor.name, tensor
    for node in graph.node:
        for attribute in node.attribute:
            name = node.output[0] if node.output else node.name
            if attribute.HasField("t"):
                yield name, attribute.t
            for tensor in attribute.tensors:
                yield name, tensor


def reads(node: NodeProto) -> Iterator[str]:
    """The names that a node reads, with those that its bodies take from around it."""
    yield from (name for name in node.input if name)
    for body in bodies(node):
        yield from captured(body)


def rename_reads(node: NodeProto, renamed: Mapping[str, str]) -> None:
    """Rename what a node and its bodies read from around them."""
    node.input[:] = [renamed.get(name, name) for name in node.input]
    for body in bodies(node):
        own = set(defined(body))
        outer = {old: new for old, new in renamed.items() if old not in own}
        for inner in body.node:
            rename_reads(inner, outer)
        for port in body.output:
            port.name = outer.get(port.name, port.name)


def captured(body: GraphProto) -> Iterator[str]:
    """The names that a body reads and does not define."""
    own = set(defined(body))
    for node in body.node:
        yield from (name for name in reads(node) if name not in own)
    yield from (port.name for port in body.output if port.name not in own)


def defined(graph: GraphProto) -> Iterator[str]:
    """The names that a graph gives a value: inputs, initializers, outputs of nodes."""
    yield from (port.name for port in graph.input)
    yield from (tensor.name for tensor in graph.initializer)
    for node in graph.node:
        yield from (name for name in node.output if name)
