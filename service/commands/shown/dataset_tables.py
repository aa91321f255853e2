"""Uploaded data sets as tables for people."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rich.table import Table

from search.documents.datasets import ArrayFacts, DatasetFacts
from search.documents.readable import shape
from service.api.datasets.schemas import DatasetDocument
from service.commands.given.references import SHORT
from service.commands.shown.listing import Column, age, count, moment
from service.commands.shown.tables import lines_table


def samples_of(facts: DatasetFacts | ArrayFacts) -> int:
    """How many samples there are in all."""
    return facts.samples if isinstance(facts, ArrayFacts) else sum(facts.samples.values())


def _fact(name: str) -> Callable[[DatasetDocument], int | None]:
    """A number that belongs to samples, and not to arrays."""
    return lambda dataset: getattr(dataset.facts, name, None)


def _number(name: str, *, narrow: bool = True) -> Column[DatasetDocument]:
    found = _fact(name)
    return Column(name, found, lambda one: count(found(one)), number=True, narrow=narrow)


DATASETS: Sequence[Column[DatasetDocument]] = (
    Column("id", lambda one: one.id, lambda one: one.id[:SHORT], wide=False),
    Column("id", lambda one: one.id, narrow=False),
    Column("name", lambda one: one.name, is_cut=True),
    Column("problem", lambda one: one.facts.problem),
    Column(
        "samples",
        lambda one: samples_of(one.facts),
        lambda one: count(samples_of(one.facts)),
        number=True,
    ),
    _number("steps", narrow=False),
    _number("features"),
    _number("outputs", narrow=False),
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
"""The columns of a list of data sets."""


def dataset_table(dataset: DatasetDocument) -> Table:
    """What one data set holds, line by line."""
    facts = dataset.facts
    lines = {**_LINES[type(facts)](facts), "sha256": dataset.sha256}
    return lines_table(f"{dataset.name} ({dataset.id})", lines)


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
    for name, samples in zip(facts.classes or [], facts.class_counts or [], strict=True):
        lines[f"samples of {name}"] = f"{samples:,}"
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
