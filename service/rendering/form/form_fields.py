"""What a form asks for, read off the schemas of the documents that it fills in."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Literal, TypeAlias

from models.exports.files import ExportedFile
from search.documents.catalog import CatalogEntry, RuleEntry
from search.documents.objectives import OBJECTIVE_KINDS, Objective, ObjectiveKind
from search.documents.region import ENDS, Bound
from search.spaces.dimension import Dimension
from search.spaces.model_space import ARCHITECTURE_KINDS, PARAMETRIZATION_KINDS
from search.spaces.space import describe
from search.studies.catalog import catalog
from search.studies.spec import Budget, Limits, StudySpec
from search.tasks import Digits
from search.training.compression import Compress
from search.training.throughput_spec import Throughput

Input: TypeAlias = Literal["text", "integer", "number", "choice"]

_BOOLEAN = ("true", "false")


@dataclass(frozen=True, kw_only=True)
class Field:
    """One field of a document, and what a form has for it."""

    name: str
    """In the form."""
    path: str
    """In the document, where its faults are."""
    label: str
    input: Input
    options: tuple[str, ...] = ()
    hint: str = ""
    usual: str = ""
    """What it is where nothing is filled in."""
    required: bool = False


@dataclass(frozen=True, kw_only=True)
class Variant:
    """One member of a union, with the fields that only it has."""

    kind: str
    title: str
    fields: tuple[Field, ...]
    ranges: tuple[Dimension, ...] = ()
    """What can be searched of it."""
    fits: tuple[str, ...] = ()
    """Of a parametrization: the architectures on whose weights it is defined."""


@dataclass(frozen=True, kw_only=True)
class FormFields:
    """All that the form of a study asks for."""

    tasks: tuple[Variant, ...]
    architectures: tuple[Variant, ...]
    parametrizations: tuple[Variant, ...]
    samplers: tuple[Variant, ...]
    stopping: tuple[Variant, ...]
    shared: tuple[Dimension, ...]
    """What can be searched of every candidate: sizes by their bare name, and the training."""
    bounds: Mapping[Objective, tuple[Field, ...]]
    """Of each objective: from which value on it interests."""
    compress: tuple[Field, ...]
    limits: tuple[Field, ...]
    budget: tuple[Field, ...]
    throughput: tuple[Field, ...]
    export: tuple[Field, ...]


@cache
def form_fields() -> FormFields:
    """The fields of this program's documents; they do not change while it runs."""
    known = catalog()
    dimensions = _dimensions()
    sizes = _sizes_of_all(dimensions)
    training = [found for name, found in dimensions.items() if name.startswith("training.")]
    return FormFields(
        tasks=tuple(_variant(entry, "task", entry.title) for entry in known.tasks),
        architectures=tuple(
            _searched(entry, dimensions, shared=frozenset(sizes)) for entry in known.architectures
        ),
        parametrizations=tuple(
            _searched(
                entry,
                dimensions,
                fits=tuple(
                    kind for kind, fitting in known.combinations.items() if entry.kind in fitting
                ),
            )
            for entry in known.parametrizations
        ),
        samplers=tuple(_variant(entry, "sampler", entry.summary) for entry in known.samplers),
        stopping=tuple(
            _variant(entry, "early_stopping", entry.summary) for entry in known.stopping_rules
        ),
        shared=(*sizes.values(), *training),
        bounds={name: tuple(_bounds(kind)) for name, kind in OBJECTIVE_KINDS.items()},
        compress=tuple(_fields(Compress.model_json_schema(), "compress", "compress")),
        limits=tuple(_fields(Limits.model_json_schema(), "limits", "limits")),
        budget=tuple(_fields(Budget.model_json_schema(), "budget", "budget")),
        throughput=_measuring(),
        export=tuple(_fields(ExportedFile.model_json_schema(), "export", "export")),
    )


def _measuring() -> tuple[Field, ...]:
    """How throughput is measured; first what depends on where a model is to run."""
    fields = [*_fields(Throughput.model_json_schema(), "throughput", "throughput")]
    fields.sort(key=lambda field: field.path != "throughput.batch_size")
    return (replace(fields[0], label="deployment batch size"), *fields[1:])


def _variant(entry: CatalogEntry | RuleEntry, part: str, title: str) -> Variant:
    fields = tuple(_fields(entry.json_schema, part, f"{part}:{entry.kind}"))
    return Variant(kind=entry.kind, title=title, fields=fields)


def _searched(
    entry: CatalogEntry,
    dimensions: Mapping[str, Dimension],
    *,
    shared: frozenset[str] = frozenset(),
    fits: tuple[str, ...] = (),
) -> Variant:
    ranges = tuple(
        found
        for name, found in dimensions.items()
        if name.startswith(f"{entry.kind}.") and name.partition(".")[2] not in shared
    )
    return Variant(kind=entry.kind, title=entry.title, fields=(), ranges=ranges, fits=fits)


def _dimensions() -> dict[str, Dimension]:
    """What is searched when nothing is said, of everything that there is."""
    everything = StudySpec(
        task=Digits(),
        architectures=tuple(ARCHITECTURE_KINDS),
        parametrizations=tuple(PARAMETRIZATION_KINDS),
    )
    return {
        found.name: found
        for found in describe(everything).dimensions
        if not found.name.endswith("parametrization") and found.name != "architecture"
    }


def _sizes_of_all(dimensions: Mapping[str, Dimension]) -> dict[str, Dimension]:
    """The fields that every architecture is searched by, by their bare names."""
    names: dict[str, list[Dimension]] = {}
    for name, found in dimensions.items():
        kind, _, field = name.partition(".")
        if kind in ARCHITECTURE_KINDS:
            names.setdefault(field, []).append(found)
    return {
        field: found[0].model_copy(update={"name": field})
        for field, found in names.items()
        if len(found) == len(ARCHITECTURE_KINDS)
    }


def _fields(schema: Mapping[str, Any], path: str, name: str) -> Iterator[Field]:
    """The fields of a document that take one word or number; the rest is for JSON."""
    for field, described in schema["properties"].items():
        found = _input(described)
        if field in ("kind", "facts") or found is None:
            continue
        kind, options = found
        usual = described.get("default")
        yield Field(
            name=f"{name}:{field}",
            path=f"{path}.{field}",
            label=field.replace("_", " "),
            input=kind,
            options=options,
            hint=str(described.get("description", "")),
            usual="" if usual is None else str(usual).lower(),
            required=field in schema.get("required", ()),
        )


def _bounds(objective: ObjectiveKind) -> Iterator[Field]:
    """The ends that an objective can have: both where the task says which way is better."""
    ends = ENDS.values() if objective.direction is None else (ENDS[objective.direction],)
    path = f"objectives.{objective.name}"
    for found in _fields(Bound.model_json_schema(), path, f"objectives:{objective.name}"):
        if found.path.rpartition(".")[2] in ends:
            yield replace(found, label=f"{objective.name} {found.label}", hint="")


def _input(described: Mapping[str, Any]) -> tuple[Input, tuple[str, ...]] | None:
    """How a field is asked for; null where it takes more than one value."""
    options: list[Mapping[str, Any]] = described.get("anyOf") or [described]
    options = [option for option in options if option.get("type") != "null"]
    if len(options) != 1:
        return None
    if "enum" in options[0]:
        return "choice", tuple(map(str, options[0]["enum"]))
    kinds: dict[str, tuple[Input, tuple[str, ...]]] = {
        "string": ("text", ()),
        "integer": ("integer", ()),
        "number": ("number", ()),
        "boolean": ("choice", _BOOLEAN),
    }
    return kinds.get(str(options[0].get("type")))
