"""Everything that a study may name."""

from typing import Any

from pydantic import Field

from service.answers.base import Answer


class CatalogEntry(Answer):
    """One variant that a study may name."""

    kind: str
    title: str
    paper: str | None = None
    schema_: dict[str, Any] = Field(default_factory=dict[str, Any], alias="schema")


class PresetEntry(Answer):
    """A named system of a paper, with a study document that runs it."""

    name: str
    title: str
    paper: str
    description: str
    architecture: dict[str, Any]
    parametrization: dict[str, Any]
    training: dict[str, Any]
    spec: dict[str, Any]


class Catalog(Answer):
    """Everything that a study may name, and what goes with what."""

    architectures: list[CatalogEntry]
    parametrizations: list[CatalogEntry]
    tasks: list[CatalogEntry]
    combinations: dict[str, list[str]]
    refusals: dict[str, dict[str, str]]
    presets: list[PresetEntry]
