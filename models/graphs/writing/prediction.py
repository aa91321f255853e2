"""How large a file becomes, before anything is fitted."""

from collections.abc import Mapping, Sequence

import onnx

from models.graphs.fits import AnyChoice
from models.graphs.layers import Layer
from models.graphs.writing.written_file import METADATA_PREFIX, metadata_of

_PART_BYTES = 220
"""The nodes and names of a part, of 110 (8 bits) to 330 (packed ones in blocks)."""


def added_bytes(layer: Layer, choice: AnyChoice) -> int:
    """By how much a file grows if a layer is stored so; below 0 where it shrinks."""
    if choice.unchanged:
        return 0
    return choice.bytes(layer) - layer.stored_bytes + _PART_BYTES * len(choice.parts(layer))


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
