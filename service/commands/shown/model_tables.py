"""Uploaded models as tables for people."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from rich.markup import escape
from rich.table import Table

from search.documents.readable import shape
from service.api.models.schemas import (
    ModelDetail,
    ModelDocument,
    ModelSignature,
    NetworkDetail,
    NetworkDocument,
)
from service.commands.given.references import SHORT
from service.commands.shown.listing import Column, age, count, moment
from service.commands.shown.tables import lines_table

_AnyModel: TypeAlias = ModelDocument | NetworkDocument


def model_table(model: ModelDetail | NetworkDetail) -> Table:
    """What one model is, line by line, and each of its tensors or layers."""
    words = _WORDS[model.source]
    lines = {**words.lines(model), "sha256": model.sha256}
    table = lines_table(f"{model.name} ({model.id})", lines)
    for note in model.notes:
        table.add_row("note", escape(note))
    for name, about in words.parts(model):
        table.add_row(escape(name), escape(about))
    return table


def stored_name(model: ModelDetail | NetworkDetail) -> str:
    """What a model's file is called where nobody names it."""
    return f"{model.id}{_WORDS[model.source].suffix}"


def _lines_of_model(model: ModelDetail) -> dict[str, str]:
    fits = (f"{fit.task} {fit.layout or ''}".strip() for fit in model.fits)
    return {
        "read from": "a state dict of torch" if model.source == "torch" else "a checkpoint",
        **{name: str(value) for name, value in model.architecture.items()},
        **_ends(model.signature),
        "parameters": f"{model.parameters:,}",
        "multiply-adds": f"{model.totals.get('multiply_adds', 0):,}",
        "fits": ", ".join(fits) or "no task as it is by default",
    }


def _parts_of_model(model: ModelDetail) -> Iterator[tuple[str, str]]:
    for row in model.rows:
        if row.get("level") == "tensor":
            yield str(row.get("name")), " x ".join(str(size) for size in row.get("shape", ()))


def _lines_of_network(model: NetworkDetail) -> dict[str, str]:
    graph = model.graph
    ports = [("input", port) for port in graph.inputs] + [("output", p) for p in graph.outputs]
    kept = {} if model.kept_because is None else {"constants stay, because": model.kept_because}
    return {
        "read from": "an ONNX file",
        **{f"{end} {port.name}": f"{port.type}, {shape(port.shape)}" for end, port in ports},
        "opset": str(graph.opset),
        "operators": ", ".join(f"{name} {count}" for name, count in graph.operators.items()),
        "parameters": f"{model.parameters:,}",
        "bytes of weights": f"{graph.weight_bytes:,}",
        **kept,
    }


def _parts_of_network(model: NetworkDetail) -> Iterator[tuple[str, str]]:
    for layer in model.layers:
        share = 100 * layer.bytes / (model.graph.weight_bytes or 1)
        quantized = ", already quantized" if layer.quantized else ""
        yield layer.name, f"{layer.operator}, {shape(layer.shape)}, {share:.1f} %{quantized}"


@dataclass(frozen=True)
class _Words:
    """How a sort of model is shown."""

    suffix: str
    architecture: Callable[[Any], str]
    units: Callable[[Any], int | None]
    outputs: Callable[[Any], int | None]
    lines: Callable[[Any], dict[str, str]]
    parts: Callable[[Any], Iterator[tuple[str, str]]]
    """Tensors or layers, with what is known of each."""


_OF_MODELS = _Words(
    suffix=".safetensors",
    architecture=lambda model: str(model.architecture.get("kind")),
    units=lambda model: model.architecture.get("hidden_size"),
    outputs=lambda model: model.signature.output_size,
    lines=_lines_of_model,
    parts=_parts_of_model,
)
_WORDS: Mapping[str, _Words] = {
    "reflectory": _OF_MODELS,
    "torch": _OF_MODELS,
    "onnx": _Words(
        suffix=".onnx",
        architecture=lambda model: f"ONNX, opset {model.graph.opset}",
        units=lambda _model: None,
        outputs=lambda _model: None,
        lines=_lines_of_network,
        parts=_parts_of_network,
    ),
}
"""By what was sent."""


def _units(model: _AnyModel) -> int | None:
    return _WORDS[model.source].units(model)


def _outputs(model: _AnyModel) -> int | None:
    return _WORDS[model.source].outputs(model)


MODELS: Sequence[Column[_AnyModel]] = (
    Column("id", lambda one: one.id, lambda one: one.id[:SHORT], wide=False),
    Column("id", lambda one: one.id, narrow=False),
    Column("name", lambda one: one.name, is_cut=True),
    Column("architecture", lambda one: _WORDS[one.source].architecture(one)),
    Column("units", _units, lambda one: count(_units(one)), number=True),
    Column("outputs", _outputs, lambda one: count(_outputs(one)), number=True, narrow=False),
    Column(
        "parameters", lambda one: one.parameters, lambda one: count(one.parameters), number=True
    ),
    Column(
        "age",
        lambda one: -one.created_at.timestamp(),
        lambda one: age(one.created_at),
        number=True,
        wide=False,
    ),
    Column(
        "uploaded", lambda one: one.created_at, lambda one: moment(one.created_at), narrow=False
    ),
)
"""The columns of a list of models."""


def _ends(signature: ModelSignature) -> dict[str, str]:
    steps = "any" if signature.sequence_length is None else f"{signature.sequence_length:,}"
    tokens = {} if signature.vocabulary is None else {"tokens": f"{signature.vocabulary:,}"}
    return {
        **tokens,
        "features": f"{signature.input_size:,}",
        "steps": steps,
        "outputs": f"{signature.output_size:,}, after {signature.output_steps} step",
    }
