"""Whether every name in a graph is defined once, before it is read, and readable at all."""

from collections.abc import Iterable, Iterator

from onnx import GraphProto, ModelProto, NodeProto, ValueInfoProto

from models.errors import GraphRefused
from models.graphs.documents import GraphLimits
from models.graphs.reading.sentences import quoted
from models.graphs.reading.walking import all_graphs, bodies, defined, own_tensors, reads


def refuse_unreadable(model: ModelProto, limits: GraphLimits) -> None:
    """Hold all names against their longest, and against UTF-8.

    Raises:
        GraphRefused: one is no text, or too long.
    """
    for text in (model.doc_string, model.graph.doc_string):
        _refuse_bytes(text)
    for text in _texts(model):
        _refuse_bytes(text)
        if len(text) > limits.name_characters:
            raise GraphRefused(
                f"the file has the name {quoted(text)} of {len(text)} characters; allowed are "
                f"{limits.name_characters}"
            )


def _refuse_bytes(text: object) -> None:
    # Protobuf gives the bytes as they are where they are not UTF-8.
    if not isinstance(text, str):
        raise GraphRefused(f"the file has the text {text!r:.60}, which is not UTF-8")


def _texts(model: ModelProto) -> Iterator[str]:
    yield from (model.producer_name, model.producer_version, model.domain, model.graph.name)
    yield from (entry.key for entry in model.metadata_props)
    for entry in model.opset_import:
        yield entry.domain
    for graph in all_graphs(model.graph):
        for port in (*graph.input, *graph.output):
            yield port.name
            yield from (size.dim_param for size in port.type.tensor_type.shape.dim)
        yield from (name for name, _ in own_tensors(graph))
        for node in graph.node:
            yield from (node.op_type, node.domain, node.name, *node.input, *node.output)
            yield from (attribute.name for attribute in node.attribute)


def with_nodes_apart(content: bytes) -> bytes:
    """A file that `read_graph` takes, its nodes told apart; as it is where they are.

    onnxruntime does not load it otherwise.
    """
    model = ModelProto.FromString(content)
    return model.SerializeToString() if tell_nodes_apart(model) else content


def tell_nodes_apart(model: ModelProto) -> bool:
    """Give nodes whose name another node of their graph has a name of their own.

    Exporters write such files, and onnxruntime refuses them. Nothing in a file refers to a node by
    its name. Says whether there were any.
    """
    renamed = False
    for graph in all_graphs(model.graph):
        taken = {node.name for node in graph.node}
        seen: set[str] = set()
        for place, node in enumerate(graph.node):
            if node.name and node.name in seen:
                node.name = f"{node.name}_{place}"
                while node.name in taken:
                    node.name += "_"
                taken.add(node.name)
                renamed = True
            seen.add(node.name)
    return renamed


def refuse_unordered(graph: GraphProto) -> None:
    """Follow a graph and its bodies from the first node to the last.

    Raises:
        GraphRefused: a name is defined twice, also in a body and around it, or is read before it is
            defined, or never is.
    """
    _follow(graph, set())


def _follow(graph: GraphProto, visible: set[str]) -> None:
    own: list[str] = []

    def define(names: Iterable[str]) -> None:
        for name in names:
            if name in visible:
                raise GraphRefused(f"the name {quoted(name)} is defined twice")
            visible.add(name)
            own.append(name)

    define(port.name for port in graph.input)
    define(tensor.name for tensor in graph.initializer)
    for node in graph.node:
        # What a body takes from around it, it asks for itself.
        for name in node.input:
            if name and name not in visible:
                raise GraphRefused(_why_undefined(graph, name, f"the node {_shown(node)}"))
        for body in bodies(node):
            _follow(body, visible)
        define(name for name in node.output if name)
    for port in graph.output:
        if port.name not in visible:
            raise GraphRefused(_why_undefined(graph, port.name, "an output"))
    visible.difference_update(own)


def _why_undefined(graph: GraphProto, name: str, reader: str) -> str:
    if name not in set(defined(graph)):
        return f"{reader} reads {quoted(name)}, which nothing defines before it"
    if _is_cyclic(graph):
        return f"the graph has a cycle: {reader} reads {quoted(name)}, which depends on it"
    return (
        f"the nodes are not in order: {reader} reads {quoted(name)}, which a later node defines; "
        "sort them topologically"
    )


def _is_cyclic(graph: GraphProto) -> bool:
    """Whether the nodes have no order at all in which each reads what is defined before it."""
    makers = {name: place for place, node in enumerate(graph.node) for name in node.output if name}
    waits_for = [{makers[name] for name in reads(node) if name in makers} for node in graph.node]
    readers: dict[int, list[int]] = {}
    for place, wanted in enumerate(waits_for):
        for maker in wanted:
            readers.setdefault(maker, []).append(place)
    missing = [len(wanted) for wanted in waits_for]
    ready = [place for place, count in enumerate(missing) if not count]
    done = 0
    while ready:
        done += 1
        for place in readers.get(ready.pop(), ()):
            missing[place] -= 1
            if not missing[place]:
                ready.append(place)
    return done < len(missing)


def _shown(node: NodeProto) -> str:
    return f"{quoted(node.name)} ({node.op_type})" if node.name else node.op_type


def named_twice(ports: Iterable[ValueInfoProto]) -> str | None:
    """The first name that stands there twice."""
    names: set[str] = set()
    for port in ports:
        if port.name in names:
            return port.name
        names.add(port.name)
    return None
