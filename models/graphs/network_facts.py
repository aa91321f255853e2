"""What of a network can be compressed, and what is said where that is nothing."""

import math
from collections import Counter

from onnx import ModelProto

from models.errors import GraphRefused
from models.graphs.documents import DEFAULT_LIMITS, GraphLimits, LayerFacts, NetworkFacts
from models.graphs.layers import SMALLEST, Layer, find_layers
from models.graphs.reading import graph_facts
from models.graphs.reading.tensors import tensor_bytes
from models.graphs.reading.walking import all_graphs, own_tensors

_MOST_NAMED = 5


def network_facts(
    model: ModelProto, limits: GraphLimits = DEFAULT_LIMITS, *, kept_because: str | None
) -> NetworkFacts:
    """The facts of a checked model whose constants are folded, unless there is a reason why not.

    Raises:
        GraphRefused: it has more layers than `limits.layers`.
    """
    layers = tuple(map(_layer_facts, find_layers(model)))
    if len(layers) > limits.layers:
        raise GraphRefused(
            f"the model has {len(layers)} weights of {SMALLEST} numbers or more; at most "
            f"{limits.layers} are compressed"
        )
    return NetworkFacts(
        graph=graph_facts(model),
        layers=layers,
        parameters=sum(
            math.prod(tensor.dims)
            for part in all_graphs(model.graph)
            for _, tensor in own_tensors(part)
        ),
        kept_because=kept_because,
    )


def refuse_incompressible(
    model: ModelProto, network: NetworkFacts, limits: GraphLimits = DEFAULT_LIMITS
) -> None:
    """Hold that there is a layer that can be compressed.

    Where weights in bodies are let pass (`limits.top_level_share` is 0), an `If` is enough: one of
    its branches takes its place once the input that decides is fixed.

    Raises:
        GraphRefused: there is none; the message has the weights' bytes by operator.
    """
    if any(not layer.quantized for layer in network.layers):
        return
    if not limits.top_level_share and "If" in network.graph.operators:
        return
    raise GraphRefused(
        "nothing in the network can be compressed: no float32 or float16 weight of "
        f"{SMALLEST} numbers or more is at the top level of the graph. Of the weights' "
        f"{network.graph.weight_bytes} bytes are {_by_operator(model) or 'none anywhere'}"
    )


def _by_operator(model: ModelProto) -> str:
    """Shares of the weights' bytes by the operator that reads them first."""
    taken: Counter[str] = Counter()
    for part in all_graphs(model.graph):
        readers: dict[str, str] = {}
        for node in part.node:
            for name in node.input:
                readers.setdefault(name, node.op_type)
            # A tensor in an attribute goes by the name of the node's output.
            for name in node.output[:1]:
                readers.setdefault(name, node.op_type)
        for name, tensor in own_tensors(part):
            taken[readers.get(name, "outputs and bodies")] += tensor_bytes(tensor)
    total = taken.total()
    shares = [
        f"{100 * size / total:.0f} % read by {operator}"
        for operator, size in taken.most_common(_MOST_NAMED)
        if total
    ]
    others = len(taken) - len(shares)
    return ", ".join([*shares, *([f"the rest by {others} others"] if others > 0 else [])])


def _layer_facts(layer: Layer) -> LayerFacts:
    return LayerFacts(
        name=layer.name,
        operator=layer.operator,
        shape=layer.native,
        bytes=layer.stored_bytes,
        has_structure=layer.structured and not layer.quantized,
        quantized=layer.quantized,
    )
