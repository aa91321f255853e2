"""Uploaded models as tables for people."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from rich.markup import escape
from rich.table import Table

from search.documents.readable import NONE, shape
from service.api.models.schemas import (
    ModelDetail,
    ModelDocument,
    ModelSignature,
    NetworkDetail,
    NetworkDocument,
)
from service.commands.shown.tables import add_columns, empty_table, lines_table


def models_table(models: Iterable[ModelDocument | NetworkDocument]) -> Table:
    """Models, one per line."""
    table = empty_table()
    table.add_column("id", no_wrap=True)
    add_columns(table, "name", "architecture")
    add_columns(table, "units", "outputs", "parameters", numbers=True)
    table.add_column("uploaded")
    for model in models:
        kind, units, outputs = _WORDS[model.source].cells(model)
        counts = [units, outputs, f"{model.parameters:,}"]
        table.add_row(
            model.id, escape(model.name), kind, *counts, f"{model.created_at:%Y-%m-%d %H:%M}"
        )
    return table


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


def _cells_of_model(model: ModelDocument) -> tuple[str, str, str]:
    units = str(model.architecture.get("hidden_size", NONE))
    return str(model.architecture.get("kind")), units, str(model.signature.output_size)


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


def _cells_of_network(model: NetworkDocument) -> tuple[str, str, str]:
    return f"ONNX, opset {model.graph.opset}", NONE, NONE


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
    """How a sort of model is told of."""

    suffix: str
    cells: Callable[[Any], tuple[str, str, str]]
    """Architecture, units and outputs."""
    lines: Callable[[Any], dict[str, str]]
    parts: Callable[[Any], Iterator[tuple[str, str]]]
    """Tensors or layers, with what is told of each."""


_OF_MODELS = _Words(".safetensors", _cells_of_model, _lines_of_model, _parts_of_model)
_WORDS: Mapping[str, _Words] = {
    "reflectory": _OF_MODELS,
    "torch": _OF_MODELS,
    "onnx": _Words(".onnx", _cells_of_network, _lines_of_network, _parts_of_network),
}
"""By what was sent."""


def _ends(signature: ModelSignature) -> dict[str, str]:
    steps = "any" if signature.sequence_length is None else f"{signature.sequence_length:,}"
    tokens = {} if signature.vocabulary is None else {"tokens": f"{signature.vocabulary:,}"}
    return {
        **tokens,
        "features": f"{signature.input_size:,}",
        "steps": steps,
        "outputs": f"{signature.output_size:,}, after {signature.output_steps} step",
    }
