"""Weights that a file stores as halves and reads in single precision."""

from onnx import ModelProto, TensorProto, helper

_HALVES = frozenset({TensorProto.FLOAT16, TensorProto.BFLOAT16})
HANDS_ON = frozenset({"Identity", "Reshape", "Squeeze", "Unsqueeze", "Transpose", "Flatten"})
"""Operators after which numbers are those that they were."""


def names_of_halves(model: ModelProto) -> frozenset[str]:
    """Values of single precision that are computed of 16-bit weights alone, by name.

    They are what `Cast` makes of such a weight, turned or in another shape. With its constants
    computed a file has them as weights of twice the bytes; what they took is that of the halves.
    """
    held = {one.name for one in model.graph.initializer if one.data_type in _HALVES}
    whole: set[str] = set()
    for node in model.graph.node:
        source = node.input[0] if node.input else ""
        held_here = [
            entry.t
            for entry in node.attribute
            if node.op_type == "Constant" and entry.name == "value" and entry.HasField("t")
        ]
        if any(one.data_type in _HALVES for one in held_here):
            held.update(node.output)
        elif node.op_type == "Cast" and source in held:
            to = [helper.get_attribute_value(one) for one in node.attribute if one.name == "to"]
            if to == [TensorProto.FLOAT]:
                whole.update(node.output)
        elif node.op_type in HANDS_ON:
            for names in (held, whole):
                if source in names:
                    names.update(node.output)
    return frozenset(whole)
