"""Uploaded data sets as tables for people."""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from rich.markup import escape
from rich.table import Table

from search.documents.datasets import ArrayFacts, DatasetFacts
from search.documents.readable import NONE, shape
from service.api.datasets.schemas import DatasetDocument
from service.commands.shown.tables import add_columns, empty_table, lines_table


def datasets_table(datasets: Iterable[DatasetDocument]) -> Table:
    """Data sets, one per line."""
    table = empty_table()
    table.add_column("id", no_wrap=True)
    add_columns(table, "name", "problem")
    add_columns(table, "samples", "steps", "features", "outputs", numbers=True)
    table.add_column("uploaded")
    for dataset in datasets:
        facts = dataset.facts
        uploaded = f"{dataset.created_at:%Y-%m-%d %H:%M}"
        cells = [dataset.id, escape(dataset.name), facts.problem, *_COUNTS[type(facts)](facts)]
        table.add_row(*cells, uploaded)
    return table


def dataset_table(dataset: DatasetDocument) -> Table:
    """What one data set holds, line by line."""
    facts = dataset.facts
    lines = {**_LINES[type(facts)](facts), "sha256": dataset.sha256}
    return lines_table(f"{dataset.name} ({dataset.id})", lines)


def _counts_of_samples(facts: DatasetFacts) -> list[str]:
    counts = [sum(facts.samples.values()), facts.steps, facts.features, facts.outputs]
    return list(map(str, counts))


def _counts_of_arrays(facts: ArrayFacts) -> list[str]:
    return [str(facts.samples), NONE, NONE, NONE]


_COUNTS: Mapping[type, Callable[[Any], list[str]]] = {
    DatasetFacts: _counts_of_samples,
    ArrayFacts: _counts_of_arrays,
}


def _lines_of_samples(facts: DatasetFacts) -> dict[str, str]:
    steps = f"{facts.steps:,}"
    lines = {
        "problem": facts.problem,
        "samples": ", ".join(f"{count:,} {split}" for split, count in facts.samples.items()),
        "steps": steps if facts.shortest == facts.steps else f"{facts.shortest:,} to {steps}",
        "features": f"{facts.features:,}",
        "outputs": f"{facts.outputs:,}",
        "missing values, replaced": f"{facts.missing_values:,}",
    }
    for name, count in zip(facts.classes or [], facts.class_counts or [], strict=True):
        lines[f"samples of {name}"] = f"{count:,}"
    return lines


def _lines_of_arrays(facts: ArrayFacts) -> dict[str, str]:
    lines = {"problem": facts.problem, "samples": f"{facts.samples:,}"}
    for array in facts.arrays:
        lines[f"array {array.name}"] = f"{array.type}, {shape(array.shape)} a sample"
    return lines


_LINES: Mapping[type, Callable[[Any], dict[str, str]]] = {
    DatasetFacts: _lines_of_samples,
    ArrayFacts: _lines_of_arrays,
}
