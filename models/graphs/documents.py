"""What is asked and said of a stranger's network; importing this loads no runtime."""

from dataclasses import dataclass

from pydantic import Field

from models.spec import Spec


@dataclass(frozen=True, kw_only=True)
class GraphLimits:
    """Limits of a file, whichever process reads it."""

    file_bytes: int = 512 * 2**20
    folded_bytes: int = 2**30
    """Of the file after constants were computed."""
    nodes: int = 20_000
    """With those of bodies of `If`, `Loop` and `Scan`."""
    tensors: int = 100_000
    """Initializers, with those of bodies."""
    layers: int = 2000
    """Weights that may be compressed."""
    ports: int = 256
    """Inputs and outputs of the whole graph."""
    name_characters: int = 1000
    metadata_bytes: int = 2**20
    """Keys and values together."""
    fixed_bytes: int = 2**24
    """Of one input that the user fixes."""
    top_level_share: float = 0.5
    """The least share of the weights' bytes that stands outside of bodies; see
    `models.graphs.reading`."""


DEFAULT_LIMITS = GraphLimits()


class GraphPort(Spec):
    """One input or output of a graph."""

    name: str = Field(description="as runs of the file are given and give it")
    type: str = Field(description="of its elements, as numpy and ml_dtypes call it: float32")
    shape: tuple[int | str | None, ...] | None = Field(
        description="sizes; a text is a size that has a name, null one that has none. null in "
        "place of the whole: any number of dimensions"
    )


class GraphFacts(Spec):
    """What was found in an ONNX file."""

    inputs: tuple[GraphPort, ...]
    outputs: tuple[GraphPort, ...]
    opset: int = Field(description="of ai.onnx")
    nodes: int = Field(description="with those in bodies of If, Loop and Scan")
    operators: dict[str, int] = Field(description="nodes by operator, those of bodies too")
    file_bytes: int
    weight_bytes: int = Field(description="of all tensors, those of bodies too")
    top_level_share: float = Field(
        ge=0,
        le=1,
        description="of the weights' bytes, what stands outside of bodies, and can be compressed",
    )
    probabilities: tuple[str, ...] = Field(
        default=(), description="outputs that end in Softmax or Sigmoid"
    )
    metadata_keys: tuple[str, ...]
    producer: str


class LayerFacts(Spec):
    """A weight of a graph that is large enough to be compressed."""

    name: str = Field(description="the initializer's, or `Operator.node` if a tool made that up")
    operator: str = Field(description="that reads it first")
    shape: tuple[int, ...] = Field(description="in the file")
    bytes: int = Field(ge=0, description="that its numbers take in the file")
    has_structure: bool = Field(
        description="whether a product of two matrices may take its place; else bits alone are "
        "chosen for it"
    )
    quantized: bool = Field(
        default=False, description="stored as integers already, and left as it is"
    )


class NetworkFacts(Spec):
    """What was found in an ONNX file that is to be compressed, with its constants folded."""

    graph: GraphFacts
    layers: tuple[LayerFacts, ...] = Field(description="in the order of the nodes that read them")
    parameters: int = Field(ge=0, description="numbers of all weights, those of bodies too")
    kept_because: str | None = Field(description="why its constants are not folded; null: they are")
