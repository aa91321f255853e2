"""Everything that a study spec can name, read off the unions."""

from functools import cache
from typing import Any, get_args

from models.architectures import ARCHITECTURES, AnyArchitecture
from models.parametrizations import PARAMETRIZATIONS, AnyFamily
from models.spec import Spec, kind_of
from search.documents.catalog import (
    ArchitectureEntry,
    Catalog,
    CatalogEntry,
    PresetEntry,
    RuleEntry,
    TaskEntry,
)
from search.exports import EXPORTS
from search.graphs.model_outputs import ModelOutputs
from search.papers import PRESETS, Preset
from search.samplers import AnySampler
from search.spaces import ARCHITECTURE_KINDS, PARAMETRIZATION_KINDS, SearchSpace
from search.stopping import AnyStopping
from search.studies.spec import StudySpec
from search.tasks import TASKS, AnyTask


@cache
def catalog() -> Catalog:
    """The catalog of this program; it does not change while the program runs."""
    refusals = _refusals()
    return Catalog(
        architectures=tuple(
            ArchitectureEntry(
                **_entry(variant).model_dump(by_alias=True), compiled=variant.compiled
            )
            for variant in ARCHITECTURES
        ),
        parametrizations=tuple(map(_entry, PARAMETRIZATIONS)),
        tasks=tuple(
            TaskEntry(**_entry(variant).model_dump(by_alias=True), metric=variant.example().metric)
            for variant in (*TASKS, ModelOutputs)
        ),
        combinations={
            architecture: tuple(kind for kind in PARAMETRIZATION_KINDS if kind not in refused)
            for architecture, refused in refusals.items()
        },
        refusals=refusals,
        presets=tuple(map(_preset_entry, PRESETS.values())),
        samplers=tuple(map(_rule, _members(AnySampler))),
        stopping_rules=tuple(map(_rule, _members(AnyStopping))),
        exports=tuple(map(_rule, EXPORTS)),
    )


def _members(union: Any) -> tuple[type[Spec], ...]:
    """The classes of a union that a discriminator tells apart."""
    return get_args(get_args(union)[0])


def _rule(variant: type[Spec]) -> RuleEntry:
    return RuleEntry(
        kind=kind_of(variant),
        summary=(variant.__doc__ or "").strip().splitlines()[0],
        schema=variant.model_json_schema(),
    )


def _entry(
    variant: type[AnyArchitecture] | type[AnyFamily] | type[AnyTask] | type[ModelOutputs],
) -> CatalogEntry:
    return CatalogEntry(
        kind=kind_of(variant),
        title=variant.title,
        paper=variant.paper,
        schema=variant.model_json_schema(),
    )


def _preset_entry(preset: Preset) -> PresetEntry:
    return PresetEntry(
        name=preset.name,
        title=preset.title,
        paper=preset.paper,
        description=preset.description,
        architecture=preset.architecture.model_dump(mode="json"),
        parametrization=preset.parametrization.model_dump(mode="json"),
        training=preset.training.model_dump(mode="json"),
        rows=preset.rows,
        spec={
            "name": preset.title,
            "task": preset.task.model_dump(mode="json", exclude={"facts"}),
            "architectures": [preset.architecture.kind],
            "parametrizations": [preset.parametrization.kind],
            "presets": [preset.name],
            "budget": {"trials": 1, "epochs": preset.epochs},
        },
    )


def _refusals() -> dict[str, dict[str, str]]:
    """The pairs that are not defined, asked of the space of everything."""
    everything = StudySpec(
        task=TASKS[0].example(),
        architectures=tuple(ARCHITECTURE_KINDS),
        parametrizations=tuple(PARAMETRIZATION_KINDS),
    )
    found: dict[str, dict[str, str]] = {kind: {} for kind in ARCHITECTURE_KINDS}
    for pair, sentence in SearchSpace(everything).refusals.items():
        found[pair.architecture][pair.parametrization] = sentence
    return found
