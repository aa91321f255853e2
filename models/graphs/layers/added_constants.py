"""Constants that are no weights: biases, masks, and numbers that are compared or selected."""

from collections.abc import Container, Mapping, Sequence
from typing import TypeAlias

import onnx

Uses: TypeAlias = Mapping[str, Sequence[tuple[int, int]]]
"""The nodes and places at which each value is read."""

_ADDING = frozenset(
    {
        "Add",
        "Sub",
        "Sum",
        "Min",
        "Max",
        "Where",
        "Equal",
        "Greater",
        "GreaterOrEqual",
        "Less",
        "LessOrEqual",
    }
)
"""Operators that only add, compare or select what they read."""

_ADDED_PLACES: Mapping[str, frozenset[int]] = {
    "Gemm": frozenset({2}),
    "Conv": frozenset({2}),
    "ConvTranspose": frozenset({2}),
    # Biases and first states.
    "LSTM": frozenset({3, 5, 6}),
    "GRU": frozenset({3, 5}),
    "RNN": frozenset({3, 5}),
    # A mean, and a variance that rounding could make 0.
    "BatchNormalization": frozenset({2, 3, 4}),
    "InstanceNormalization": frozenset({2}),
    "GroupNormalization": frozenset({2}),
    "LayerNormalization": frozenset({2}),
    "Attention": frozenset({3}),
}
"""Places of inputs that others only add."""

_VIEWS = frozenset(
    {
        "Cast",
        "CastLike",
        "Expand",
        "Flatten",
        "Identity",
        "Reshape",
        "Slice",
        "Squeeze",
        "Tile",
        "Transpose",
        "Unsqueeze",
    }
)
"""Operators whose first input is what they answer, in another shape or type. `Gather` is none: the
rows of an embedding are added to others, too."""


def is_bias_or_mask(
    name: str,
    shape: Sequence[int],
    nodes: Sequence[onnx.NodeProto],
    uses: Uses,
    in_bodies: Container[str],
) -> bool:
    """Whether all that becomes of a value is to be added, compared or selected.

    Also if it is reshaped, cut or cast before. What bodies or none of the nodes read counts as read
    in another way. A table `[positions, numbers]` that is added to activations is none of these: it
    was learned as weights are, and is rounded as well as they are. What a Softmax reads the sum of
    is a mask, whatever its shape.
    """
    adders: list[onnx.NodeProto] = []
    if not _is_only_added(name, nodes, uses, in_bodies, adders):
        return False
    is_table = sum(size > 1 for size in shape) > 1
    if not is_table or any(node.op_type != "Add" for node in adders):
        return True
    readers = (nodes[at] for node in adders for at, _ in uses.get(node.output[0], ()))
    return any(reader.op_type == "Softmax" for reader in readers)


def _is_only_added(
    name: str,
    nodes: Sequence[onnx.NodeProto],
    uses: Uses,
    in_bodies: Container[str],
    adders: list[onnx.NodeProto],
) -> bool:
    waiting = [name]
    while waiting:
        value = waiting.pop()
        found = uses.get(value, ())
        if not found or value in in_bodies:
            return False
        for at, place in found:
            node = nodes[at]
            if node.op_type in _ADDING or place in _ADDED_PLACES.get(node.op_type, ()):
                adders.append(node)
                continue
            if node.op_type not in _VIEWS or place:
                return False
            waiting.append(node.output[0])
    return True
