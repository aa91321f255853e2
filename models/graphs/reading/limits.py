"""What a stranger's ONNX file may hold at most."""

from dataclasses import dataclass

OLDEST_OPSET = 11


@dataclass(frozen=True, kw_only=True)
class GraphLimits:
    """Limits of a file, whoever runs the process that reads it."""

    file_bytes: int = 512 * 2**20
    folded_bytes: int = 2**30
    """Of the file after constants were computed."""
    nodes: int = 20_000
    """With those of bodies of `If`, `Loop` and `Scan`."""
    tensors: int = 100_000
    """Initializers, with those of bodies."""
    ports: int = 256
    """Inputs and outputs of the whole graph."""
    name_characters: int = 1000
    metadata_bytes: int = 2**20
    """Keys and values together."""
    fixed_bytes: int = 2**24
    """Of one input that the user fixes."""
    top_level_share: float = 0.5
    """The least share of the weights' bytes that stands outside of bodies; see
    `refuse_buried_weights`."""
