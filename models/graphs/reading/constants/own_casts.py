"""Casts of a network's own that the runtime merged with those that it puts in."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Set
from typing import TypeAlias

from onnx import GraphProto, ModelProto, NodeProto, TensorProto

from models.graphs.reading.walking import all_graphs, bodies, defined, reads

_Key: TypeAlias = tuple[str, tuple[str, ...], int]


def bring_back_casts(made: ModelProto, model: ModelProto, halves: Set[str]) -> None:
    """Let nodes of `made` read the casts between half and single precision that `model` has there.

    A cast to half precision that is read by one of the runtime's own back to single is left out by
    it, with that one; so is one to single precision behind one to half. `halves` are the values of
    `made` that have half precision now that the runtime's casts are gone.
    """
    _Casts(model, halves).bring_back(made.graph, frozenset())


class _Casts:
    """The casts of a network, and which nodes read them."""

    def __init__(self, model: ModelProto, halves: Set[str]) -> None:
        self._halves = halves
        self._of: dict[str, list[NodeProto]] = defaultdict(list)
        self._before: dict[_Key, NodeProto] = {}
        for graph in all_graphs(model.graph):
            for node in graph.node:
                self._before[_key(node)] = node
                if node.op_type == "Cast" and _to(node) in (TensorProto.FLOAT, TensorProto.FLOAT16):
                    self._of[node.input[0]].append(node)

    def bring_back(self, graph: GraphProto, around: frozenset[str]) -> None:
        """In a graph and its bodies; `around` it are values of these names."""
        wanted: dict[str, NodeProto] = {}
        for node in graph.node:
            for place in range(len(node.input)):
                cast = self._between(node, place)
                if cast is not None:
                    node.input[place] = cast.output[0]
                    wanted[cast.output[0]] = cast
        _put_in(graph, {name: cast for name, cast in wanted.items() if name not in around})
        visible = around.union(defined(graph))
        for node in graph.node:
            for body in bodies(node):
                self.bring_back(body, visible)

    def _between(self, node: NodeProto, place: int) -> NodeProto | None:
        """The cast that belongs between a node and what it reads at a place."""
        casts = self._of.get(node.input[place], ())
        if not casts:
            return None
        before = self._before.get(_key(node))
        if before is not None:
            if before.input[place] == node.input[place]:
                return None
            for cast in casts:
                if cast.output[0] == before.input[place]:
                    return cast
        # The runtime made this node of others, which computed in what it makes now.
        is_half = any(name in self._halves for name in node.output)
        for cast in casts:
            if is_half == (_to(cast) == TensorProto.FLOAT16):
                return cast
        return None


def _key(node: NodeProto) -> _Key:
    """What a node and the one that it was before have in common."""
    return node.op_type, tuple(node.output), len(node.input)


def _to(cast: NodeProto) -> int:
    return next((one.i for one in cast.attribute if one.name == "to"), TensorProto.UNDEFINED)


def _put_in(graph: GraphProto, casts: Mapping[str, NodeProto]) -> None:
    """Put each cast in front of the first node that reads it; one that is there moves."""
    if not casts:
        return
    waiting = dict(casts)
    nodes: list[NodeProto] = []

    def put(names: Iterable[str]) -> None:
        for name in names:
            cast = waiting.pop(name, None)
            if cast is not None:
                put(cast.input)
                nodes.append(cast)

    for node in graph.node:
        if not casts.keys() & set(node.output):
            put(reads(node))
            nodes.append(node)
    del graph.node[:]
    graph.node.extend(nodes)
