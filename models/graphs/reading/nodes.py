"""What nodes may be: operators on the list, and attributes of numbers, tensors and graphs."""

from onnx import AttributeProto, GraphProto, NodeProto, TensorProto, numpy_helper

from models.errors import GraphRefused
from models.graphs.reading.operators import OPERATORS
from models.graphs.reading.sentences import first_of, quoted
from models.graphs.reading.tensors import NAMES, element_name
from models.graphs.reading.walking import all_graphs

_STANDARD = ("", "ai.onnx")
_REFUSED_TYPES: dict[int, str] = {
    AttributeProto.SPARSE_TENSOR: "a sparse tensor",
    AttributeProto.SPARSE_TENSORS: "sparse tensors",
    AttributeProto.TYPE_PROTO: "a type, which sequences and optionals have",
    AttributeProto.TYPE_PROTOS: "types, which sequences and optionals have",
    AttributeProto.TENSORS: "several tensors",
    AttributeProto.GRAPHS: "several graphs",
}


def refuse_unknown_operators(graph: GraphProto) -> None:
    """Look for operators that are not on the list, in bodies too.

    Raises:
        GraphRefused: there are some; the first five are named.
    """
    unknown: dict[str, None] = {}
    for part in all_graphs(graph):
        for node in part.node:
            if node.domain not in _STANDARD:
                unknown[f"{node.domain}.{node.op_type}"] = None
            elif node.op_type not in OPERATORS or node.overload:
                unknown[node.op_type] = None
    if unknown:
        raise GraphRefused(
            f"the model uses operators that are not supported: {first_of(list(unknown))}; "
            "supported are those of ai.onnx for inference, without random numbers, sequences, "
            "optionals and strings"
        )


def refuse_unsafe_attributes(graph: GraphProto) -> None:
    """Look at nodes' attributes, in bodies too.

    Raises:
        GraphRefused: one has a type that is not read, a `Cast` makes strings, or a `Dropout` drops.
    """
    for part in all_graphs(graph):
        for node in part.node:
            for attribute in node.attribute:
                _refuse_attribute(node, attribute)
    _refuse_dropout(graph, {})


def _refuse_attribute(node: NodeProto, attribute: AttributeProto) -> None:
    where = f"the attribute {quoted(attribute.name)} of a node {node.op_type}"
    held = _REFUSED_TYPES.get(attribute.type)
    if held is None and (attribute.sparse_tensors or attribute.HasField("sparse_tensor")):
        held = "a sparse tensor"
    if held is None and (attribute.graphs or attribute.tensors or attribute.HasField("tp")):
        held = "more than its type says"
    if held is None and attribute.ref_attr_name:
        held = "what a function is called with"
    if held is None and node.op_type == "Constant" and attribute.name.startswith("value_string"):
        held = "strings"
    if held is not None:
        raise GraphRefused(f"{where} holds {held}, which is not supported")
    if node.op_type == "Cast" and attribute.name == "to" and attribute.i not in NAMES:
        raise GraphRefused(
            f"a node Cast makes elements of type {element_name(attribute.i)}; allowed are "
            f"{', '.join(NAMES.values())}"
        )


def _refuse_dropout(graph: GraphProto, around: dict[str, bool]) -> None:
    """Of each name that is known to be true or false, which it is, is known as far as it goes."""
    known = dict(around)
    for tensor in graph.initializer:
        _learn(known, tensor.name, tensor)
    for node in graph.node:
        mode = node.input[2] if node.op_type == "Dropout" and len(node.input) > 2 else ""
        if mode and known.get(mode) is not False:
            raise GraphRefused(
                f"a node Dropout {quoted(node.name)} may drop at random; its training_mode must "
                "be a constant false, or left out"
            )
        for attribute in node.attribute:
            if node.op_type == "Constant" and attribute.name == "value" and node.output:
                _learn(known, node.output[0], attribute.t)
            if attribute.HasField("g"):
                _refuse_dropout(attribute.g, known)


def _learn(known: dict[str, bool], name: str, tensor: TensorProto) -> None:
    if tensor.data_type == TensorProto.BOOL and not tensor.dims:
        known[name] = bool(numpy_helper.to_array(tensor))
