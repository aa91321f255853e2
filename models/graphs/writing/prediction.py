"""How large a file becomes, before anything is fitted."""

from collections.abc import Mapping, Sequence

import onnx

from models.graphs.fits import AnyChoice, Part
from models.graphs.layers import Layer
from models.graphs.writing.written_file import METADATA_PREFIX, metadata_of

_WHOLE, _BYTES, _PACKED, _BLOCKS = 90, 150, 350, 50
"""The nodes and names of a part: of 32 bits, of 8, of fewer, and what blocks add to these."""


def added_bytes(layer: Layer, choice: AnyChoice) -> int:
    """By how much a file grows if a layer is stored so; below 0 where it shrinks."""
    if choice.unchanged:
        return 0
    nodes = sum(map(_node_bytes, choice.parts(layer).values()))
    return choice.bytes(layer) - layer.stored_bytes + nodes


def _node_bytes(part: Part) -> int:
    if part.bits == 32:
        return _WHOLE
    nodes = _BYTES if part.bits == 8 else _PACKED
    return nodes + (_BLOCKS if part.group else 0)


def predicted_bytes(
    model: onnx.ModelProto, layers: Sequence[Layer], choices: Mapping[str, AnyChoice]
) -> int:
    """The size of a file, in bytes, with each layer stored as chosen by its name.

    Numbers are counted exactly. Nodes and names are estimated: together they are within 2 % and
    0.5 KB a layer of the file that `written` makes without metadata of yours.
    """
    total = model.ByteSize() + len(METADATA_PREFIX) + len(metadata_of(choices)) + 20
    return total + sum(
        added_bytes(layer, choices[layer.name]) for layer in layers if layer.name in choices
    )
