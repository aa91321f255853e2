"""A branch of an `If` in the place of the node itself."""

from collections import Counter

from onnx import GraphProto, NodeProto, TensorProto, helper

from models.errors import GraphRefused
from models.graphs.reading.sentences import quoted
from models.graphs.reading.walking import all_graphs, bodies, defined, rename_reads


class Names:
    """How often each name is defined in a graph and its bodies."""

    def __init__(self, graph: GraphProto) -> None:
        self._values = Counter(name for part in all_graphs(graph) for name in defined(part))
        self._nodes = Counter(node.name for node in graph.node if node.name)

    def forget(self, graph: GraphProto) -> None:
        """A body is gone, with the bodies in it."""
        self._values.subtract(name for part in all_graphs(graph) for name in defined(part))

    def value(self, name: str) -> str:
        """The name that a value of a body gets at the top level: its own, if it is free."""
        if self._values[name] <= 1:
            return name
        self._values[name] -= 1
        return _free(name, self._values)

    def node(self, name: str) -> str:
        """The name that a node of a body gets at the top level."""
        if not name or not self._nodes[name]:
            self._nodes[name] += 1
            return name
        return _free(name, self._nodes)


def branch_of(node: NodeProto, *, taken: bool) -> GraphProto:
    """The branch of an `If` for a true or a false condition.

    Raises:
        GraphRefused: the node has none.
    """
    wanted = "then_branch" if taken else "else_branch"
    for attribute in node.attribute:
        if attribute.name == wanted and attribute.HasField("g"):
            return attribute.g
    raise GraphRefused(f"a node If {quoted(node.name)} has no {wanted}")


def inlined(
    node: NodeProto, branch: GraphProto, names: Names
) -> tuple[list[NodeProto], list[TensorProto]]:
    """The nodes and initializers of a branch, with names of their own at the top level.

    The last nodes give the branch's outputs the names that the `If` gave them.
    """
    for body in bodies(node):
        if body is not branch:
            names.forget(body)
    renamed = {name: names.value(name) for name in defined(branch)}
    renamed = {old: new for old, new in renamed.items() if old != new}
    nodes: list[NodeProto] = []
    for inner in branch.node:
        copied = NodeProto()
        copied.CopyFrom(inner)
        copied.name = names.node(inner.name)
        rename_reads(copied, renamed)
        copied.output[:] = [renamed.get(name, name) for name in copied.output]
        nodes.append(copied)
    for inside, outside in zip(branch.output, node.output, strict=False):
        if outside:
            source = renamed.get(inside.name, inside.name)
            nodes.append(helper.make_node("Identity", [source], [outside]))
    tensors: list[TensorProto] = []
    for tensor in branch.initializer:
        moved = TensorProto()
        moved.CopyFrom(tensor)
        moved.name = renamed.get(tensor.name, tensor.name)
        tensors.append(moved)
    return nodes, tensors


def _free(name: str, taken: Counter[str]) -> str:
    number = 1
    while taken[f"{name}_{number}"]:
        number += 1
    taken[f"{name}_{number}"] = 1
    return f"{name}_{number}"
