"""A graph with its layers stored as chosen."""

import json
from collections.abc import Iterator, Mapping, Sequence

import onnx
from onnx import TensorProto

from models.errors import ExportError
from models.graphs.fits import AnyChoice, Fit
from models.graphs.layers import Layer, NodeWriter

LOWEST_OPSET = 11
METADATA_PREFIX = "reflectory."
"""What is added to a file's metadata has keys that begin with it."""
_CHOICES = "choices"
_CONSTANT_INPUTS = 4
"""From this IR version on, weights need not be inputs as well."""


def written(
    model: onnx.ModelProto,
    layers: Sequence[Layer],
    fits: Mapping[str, Fit],
    *,
    metadata: Mapping[str, str] | None = None,
) -> onnx.ModelProto:
    """The model with each layer that has a fit, by its name, stored as that says.

    A weight becomes nodes that read constants alone, under the name that it had: onnxruntime
    computes them as it loads the file. Factors that run take the place of the node that read the
    weight. Inputs, outputs and metadata stay; `reflectory.choices` says what was chosen for each
    layer (JSON), and `metadata` is added under `reflectory.`. The model given is left as it is.

    Raises:
        ExportError: the model's operator set is below 11.
    """
    opset = _opset(model)
    if opset < LOWEST_OPSET:
        raise ExportError(f"the operator set is {opset}; allowed is {LOWEST_OPSET} or above")
    changed = [
        (layer, fits[layer.name])
        for layer in layers
        if layer.name in fits and not fits[layer.name].choice.unchanged
    ]
    made = onnx.ModelProto()
    made.CopyFrom(model)
    _drop(made, {layer.weight for layer, _ in changed})
    writer = NodeWriter(set(_names(model.graph)))
    runs: dict[int, tuple[Layer, Fit, Mapping[str, str]]] = {}
    for layer, fit in changed:
        parts = {name: part.decoded(writer) for name, part in fit.parts.items()}
        if fit.choice.runs_factors:
            parts = {name: _cast(writer, value, layer) for name, value in parts.items()}
            runs[layer.readers[0].node] = (layer, fit, parts)
        else:
            _restore(writer, fit.choice.assemble(writer, parts, layer), layer)
    front = writer.cut()
    for place, node in enumerate(model.graph.node):
        if place in runs:
            _run_factors(writer, node, *runs[place])
        else:
            writer.taken_over(node)
    del made.graph.node[:]
    made.graph.node.extend([*front, *writer.cut()])
    made.graph.initializer.extend(writer.initializers)
    _describe(made, metadata_of({layer.name: fit.choice for layer, fit in changed}), metadata or {})
    return made


def metadata_of(choices: Mapping[str, AnyChoice]) -> str:
    """What a file says of the choices that it was made by: JSON, without defaults."""
    shown = {
        name: {"kind": choice.kind, **choice.model_dump(exclude_defaults=True)}
        for name, choice in choices.items()
        if not choice.unchanged
    }
    return json.dumps(shown, separators=(",", ":"))


def _opset(model: onnx.ModelProto) -> int:
    return max(
        (one.version for one in model.opset_import if one.domain in ("", "ai.onnx")), default=0
    )


def _restore(writer: NodeWriter, value: str, layer: Layer) -> None:
    """Bring matrices to the weight's shape and type, under its name."""
    arrangement = layer.role.arrangement
    if arrangement.permuted != (layer.rows, layer.columns):
        value = writer.node("Reshape", value, writer.integers(*arrangement.permuted))
    if arrangement.permutation:
        value = writer.node("Transpose", value, perm=list(arrangement.restoring))
    _cast(writer, value, layer)
    # Bodies of loops read a weight by its name, too.
    writer.nodes[-1].output[0] = layer.weight


def _cast(writer: NodeWriter, value: str, layer: Layer) -> str:
    if layer.element == "float16":
        return writer.node("Cast", value, to=TensorProto.FLOAT16)
    return value


def _run_factors(
    writer: NodeWriter, node: onnx.NodeProto, layer: Layer, fit: Fit, parts: Mapping[str, str]
) -> None:
    rank = fit.choice.parts(layer)["left"].rows
    layer.readers[0].role.run_factors(writer, node, parts["left"], parts["right"], rank)


def _drop(model: onnx.ModelProto, weights: set[str]) -> None:
    """Remove weights, and where they had to be inputs as well, all weights from the inputs."""
    graph = model.graph
    if weights and model.ir_version < _CONSTANT_INPUTS:
        model.ir_version = _CONSTANT_INPUTS
        initialized = {tensor.name for tensor in graph.initializer}
        inputs = [entry for entry in graph.input if entry.name not in initialized]
        del graph.input[:]
        graph.input.extend(inputs)
    kept = [tensor for tensor in graph.initializer if tensor.name not in weights]
    del graph.initializer[:]
    graph.initializer.extend(kept)


def _describe(model: onnx.ModelProto, choices: str, metadata: Mapping[str, str]) -> None:
    for name, text in {_CHOICES: choices, **metadata}.items():
        model.metadata_props.add(key=METADATA_PREFIX + name, value=text)


def _names(graph: onnx.GraphProto) -> Iterator[str]:
    """All names of values, in bodies as well."""
    yield from (entry.name for entry in (*graph.input, *graph.output, *graph.initializer))
    for node in graph.node:
        yield from (*node.input, *node.output)
        for attribute in node.attribute:
            for body in (*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs):
                yield from _names(body)
