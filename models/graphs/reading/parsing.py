"""A stranger's bytes as a model, or the sentence that says why not."""

from google.protobuf.message import DecodeError
from onnx import GraphProto, ModelProto

from models.errors import GraphRefused
from models.graphs.documents import DEFAULT_LIMITS, GraphLimits
from models.graphs.reading.naming import refuse_unordered, refuse_unreadable, tell_nodes_apart
from models.graphs.reading.nodes import refuse_unknown_operators, refuse_unsafe_attributes
from models.graphs.reading.ports import refuse_untyped, without_defaults
from models.graphs.reading.runtime import OLDEST_OPSET, newest_ir_version, newest_opset
from models.graphs.reading.tensors import refuse_not_finite, refuse_unsound
from models.graphs.reading.walking import all_graphs, own_tensors

_STANDARD = ("", "ai.onnx")
_OLDEST_IR_VERSION = 3


def read_graph(data: bytes, limits: GraphLimits = DEFAULT_LIMITS) -> ModelProto:
    """A file's model, if nothing in it is refused; no tensor outside of the file is loaded.

    The model says the same in fewer ways: its one opset import is that of `ai.onnx`, whose domain
    is written as `""`; inputs with a default are constants; nodes have names of their own or none;
    shapes between nodes are left out, for the runtime finds them again.

    Raises:
        GraphRefused: the file is too large, is no ONNX model or a damaged one, has operators that
            are not on the list, an opset that is not run, external data, functions, training
            information, sequences, optionals, strings or sparse tensors, tensors whose dimensions
            disagree with their bytes, weights that are not finite, names that are defined twice or
            too late, or inputs and outputs without types.
    """
    if len(data) > limits.file_bytes:
        raise GraphRefused(
            f"the file has {len(data)} bytes; an ONNX file may have {limits.file_bytes}"
        )
    model = _parsed(data)
    _refuse_extras(model)
    _refuse_many(model, limits)
    refuse_unreadable(model, limits)
    refuse_unknown_operators(model.graph)
    _settle_opset(model)
    for graph in all_graphs(model.graph):
        for name, tensor in own_tensors(graph):
            refuse_unsound(name, tensor)
    refuse_unsafe_attributes(model.graph)
    without_defaults(model.graph)
    refuse_untyped(model.graph, limits)
    refuse_unordered(model.graph)
    tell_nodes_apart(model)
    for graph in all_graphs(model.graph):
        for name, tensor in own_tensors(graph):
            refuse_not_finite(name, tensor)
    return model


def _parsed(data: bytes) -> ModelProto:
    try:
        model = ModelProto.FromString(data)
    except DecodeError as error:
        raise GraphRefused("the file is no ONNX model, or is damaged or cut off") from error
    if not model.HasField("graph") or not model.graph.output:
        raise GraphRefused("the file is no ONNX model: it has no graph with an output")
    if not model.graph.node:
        raise GraphRefused("the ONNX model has no nodes")
    # A later version of the format may have written them; nothing here would look at them.
    model.DiscardUnknownFields()
    return model


def _refuse_extras(model: ModelProto) -> None:
    if model.functions:
        raise GraphRefused(
            f"the model has {len(model.functions)} functions of its own; inline them, for example "
            "by onnx.inliner.inline_local_functions"
        )
    if model.training_info:
        raise GraphRefused("the model has training information; export it for inference")
    if model.ir_version < _OLDEST_IR_VERSION or model.ir_version > newest_ir_version():
        raise GraphRefused(
            f"the file has IR version {model.ir_version}; allowed are {_OLDEST_IR_VERSION} to "
            f"{newest_ir_version()}"
        )
    # They say where operators run, which is decided here.
    model.ClearField("configuration")


def _refuse_many(model: ModelProto, limits: GraphLimits) -> None:
    nodes = tensors = 0
    for graph in all_graphs(model.graph):
        nodes, tensors = nodes + len(graph.node), tensors + len(graph.initializer)
        if nodes > limits.nodes:
            raise GraphRefused(
                f"the model has more than {limits.nodes} nodes, those of bodies counted"
            )
        if tensors > limits.tensors:
            raise GraphRefused(f"the model has more than {limits.tensors} initializers")
        if graph.sparse_initializer:
            raise GraphRefused("the model has sparse tensors; store them dense")
        graph.ClearField("value_info")
        graph.ClearField("quantization_annotation")
    size = sum(entry.ByteSize() for entry in model.metadata_props)
    if size > limits.metadata_bytes:
        raise GraphRefused(
            f"the model's metadata take {size} bytes; allowed are {limits.metadata_bytes}"
        )


def _settle_opset(model: ModelProto) -> None:
    """Leave the one opset that nodes use."""
    versions = {entry.version for entry in model.opset_import if entry.domain in _STANDARD}
    if len(versions) != 1:
        found = ", ".join(map(str, sorted(versions))) or "none"
        raise GraphRefused(f"the model must name one opset of ai.onnx; it names {found}")
    (version,) = versions
    if not OLDEST_OPSET <= version <= newest_opset():
        raise GraphRefused(
            f"the model has opset {version}; allowed are {OLDEST_OPSET} to {newest_opset()}"
        )
    del model.opset_import[:]
    model.opset_import.add(domain="", version=version)
    _drop_domains(model.graph)


def _drop_domains(graph: GraphProto) -> None:
    for part in all_graphs(graph):
        for node in part.node:
            node.ClearField("domain")
            node.ClearField("device_configurations")
