"""Uploaded models as tables for people."""

from collections.abc import Iterable

from rich.markup import escape
from rich.table import Table

from service.api.models.schemas import ModelDetail, ModelDocument, ModelSignature
from service.commands.shown.tables import add_columns, empty_table, lines_table


def models_table(models: Iterable[ModelDocument]) -> Table:
    """Models, one per line."""
    table = empty_table()
    table.add_column("id", no_wrap=True)
    add_columns(table, "name", "architecture")
    add_columns(table, "units", "outputs", "parameters", numbers=True)
    table.add_column("uploaded")
    for model in models:
        units = str(model.architecture.get("hidden_size", "–"))
        counts = [units, str(model.signature.output_size), f"{model.parameters:,}"]
        kind = str(model.architecture.get("kind"))
        table.add_row(
            model.id, escape(model.name), kind, *counts, f"{model.created_at:%Y-%m-%d %H:%M}"
        )
    return table


def model_table(model: ModelDetail) -> Table:
    """What one model is, line by line, and each of its tensors."""
    fits = (f"{fit.task} {fit.layout or ''}".strip() for fit in model.fits)
    lines = {
        "read from": "a state dict of torch" if model.source == "torch" else "a checkpoint",
        **{name: str(value) for name, value in model.architecture.items()},
        **_ends(model.signature),
        "parameters": f"{model.parameters:,}",
        "multiply-adds": f"{model.totals.get('multiply_adds', 0):,}",
        "fits": ", ".join(fits) or "no task as it is by default",
        "sha256": model.sha256,
    }
    table = lines_table(f"{model.name} ({model.id})", lines)
    for note in model.notes:
        table.add_row("note", escape(note))
    for row in model.rows:
        if row.get("level") == "tensor":
            shape = " x ".join(str(size) for size in row.get("shape", ()))
            table.add_row(escape(str(row.get("name"))), shape)
    return table


def _ends(signature: ModelSignature) -> dict[str, str]:
    steps = "any" if signature.sequence_length is None else f"{signature.sequence_length:,}"
    tokens = {} if signature.vocabulary is None else {"tokens": f"{signature.vocabulary:,}"}
    return {
        **tokens,
        "features": f"{signature.input_size:,}",
        "steps": steps,
        "outputs": f"{signature.output_size:,}, after {signature.output_steps} step",
    }
