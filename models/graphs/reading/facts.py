"""What is said of a model, and what of it cannot be compressed."""

from collections import Counter
from collections.abc import Iterator

from onnx import GraphProto, ModelProto, ValueInfoProto

from models.errors import GraphRefused
from models.graphs.documents import DEFAULT_LIMITS, GraphFacts, GraphLimits, GraphPort
from models.graphs.reading.tensors import NAMES, tensor_bytes
from models.graphs.reading.walking import all_graphs, bodies, own_tensors

_GIVES_PROBABILITIES = ("Softmax", "Sigmoid", "HardSigmoid")
_MOVES_NUMBERS = ("Identity", "Cast", "Reshape", "Squeeze", "Unsqueeze", "Transpose", "Flatten")


def graph_facts(model: ModelProto) -> GraphFacts:
    """The facts of a model that `read_graph` gave, or of what was made of one."""
    graph = model.graph
    weight_bytes, share = weight_share(graph)
    operators = Counter(node.op_type for part in all_graphs(graph) for node in part.node)
    return GraphFacts(
        inputs=tuple(map(_port, graph.input)),
        outputs=tuple(map(_port, graph.output)),
        opset=model.opset_import[0].version,
        nodes=operators.total(),
        operators=dict(sorted(operators.items())),
        file_bytes=model.ByteSize(),
        weight_bytes=weight_bytes,
        top_level_share=share,
        probabilities=tuple(_probabilities(graph)),
        metadata_keys=tuple(entry.key for entry in model.metadata_props),
        producer=model.producer_name,
    )


def _probabilities(graph: GraphProto) -> Iterator[str]:
    """Outputs whose last step, but for what moves numbers, gives probabilities."""
    makers = {name: node for node in graph.node for name in node.output}
    for port in graph.output:
        maker = makers.get(port.name)
        while maker is not None and maker.op_type in _MOVES_NUMBERS:
            maker = makers.get(maker.input[0])
        if maker is not None and maker.op_type in _GIVES_PROBABILITIES:
            yield port.name


def refuse_buried_weights(model: ModelProto, limits: GraphLimits = DEFAULT_LIMITS) -> None:
    """Hold the share of the weights outside of bodies against the least.

    Weights in bodies of `If`, `Loop` and `Scan` are left as they are.

    Raises:
        GraphRefused: the share is below `limits.top_level_share`.
    """
    _, share = weight_share(model.graph)
    if share >= limits.top_level_share:
        return
    holders = sorted({node.op_type for node in model.graph.node if any(bodies(node))})
    raise GraphRefused(
        f"{100 * share:.0f} % of the weights' bytes are at the top level of the graph, the others "
        f"in bodies of {', '.join(holders)}, which are left as they are; "
        f"{100 * limits.top_level_share:.0f} % are needed. An If that depends on an input is "
        "replaced by one of its branches if that input is fixed"
    )


def weight_share(graph: GraphProto) -> tuple[int, float]:
    """Bytes of all tensors, and the share of those outside of bodies; 1 where there are none."""
    total = sum(
        tensor_bytes(tensor) for part in all_graphs(graph) for _, tensor in own_tensors(part)
    )
    top = sum(tensor_bytes(tensor) for _, tensor in own_tensors(graph))
    return total, top / total if total else 1.0


def _port(port: ValueInfoProto) -> GraphPort:
    described = port.type.tensor_type
    shape: tuple[int | str | None, ...] | None = None
    if described.HasField("shape"):
        # Some exporters write -1 for a size that is not known.
        shape = tuple(
            size.dim_param or (size.dim_value if size.HasField("dim_value") else None)
            for size in described.shape.dim
        )
        shape = tuple(None if isinstance(size, int) and size < 0 else size for size in shape)
    return GraphPort(name=port.name, type=NAMES[described.elem_type], shape=shape)
