"""Casts that the runtime puts into a network which computes in half precision."""

from onnx import GraphProto, ModelProto, NodeProto

from models.graphs.reading.constants.own_casts import bring_back_casts
from models.graphs.reading.walking import all_graphs, defined, rename_reads

_INSERTED = "InsertedPrecisionFreeCast_"
"""How onnxruntime begins their names; what it names otherwise stays where it is."""


def remove_inserted_casts(made: ModelProto, model: ModelProto) -> None:
    """Let `made`, as the runtime wrote it, compute in half precision where `model` does.

    Where its CPU has no kernel for float16, onnxruntime computes in single precision, between casts
    of its own. It does so again as it loads the file. In the file they would keep layers from their
    weights, and have devices that compute in half precision do otherwise.
    """
    own = {name for graph in all_graphs(model.graph) for name in defined(graph)}
    halves: set[str] = set()
    for graph in all_graphs(made.graph):
        halves |= _remove(graph, own)
    bring_back_casts(made, model, halves)


def _remove(graph: GraphProto, own: set[str]) -> set[str]:
    """Say which values have half precision by that.

    `own` are the names of the model as it was: of a cast between two of them both stay.
    """
    same: dict[str, str] = {}

    def final(name: str) -> str:
        while name in same:
            name = same[name]
        return name

    kept: list[NodeProto] = []
    for node in graph.node:
        if node.op_type == "Cast" and node.name.startswith(_INSERTED):
            read, made = final(node.input[0]), final(node.output[0])
            gone, stays = (read, made) if made in own else (made, read)
            if gone not in own:
                same[gone] = stays
                continue
        kept.append(node)
    there = {final(name) for name in defined(graph)}
    for name in there - own:
        if (plain := name.removeprefix(_INSERTED)) in own - there:
            same[name] = plain
    renamed = {name: final(name) for name in same}
    halves = {
        final(name)
        for node in kept
        for name in node.output
        if name.startswith(_INSERTED) and name not in own
    }
    for node in kept:
        rename_reads(node, renamed)
        node.output[:] = [renamed.get(name, name) for name in node.output]
    del graph.node[:]
    graph.node.extend(kept)
    return halves
