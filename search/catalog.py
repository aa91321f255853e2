"""Everything that a study spec can name, read off the unions."""

from functools import cache
from typing import Any

from pydantic import Field

from models.architectures import ARCHITECTURES, AnyArchitecture
from models.parametrizations import PARAMETRIZATIONS, AnyFamily
from models.spec import Spec, kind_of
from search.model_space import (
    ARCHITECTURE_KINDS,
    PARAMETRIZATION_KINDS,
    Candidate,
    ModelSpace,
)
from search.presets import PRESETS, Preset
from search.spec import StudySpec
from search.tasks import TASKS, AnyTask, Metric


class CatalogEntry(Spec):
    """An architecture or a parametrization."""

    kind: str
    title: str
    paper: str
    json_schema: dict[str, Any] = Field(alias="schema", description="JSON schema of its document")


class TaskEntry(CatalogEntry):
    """A task, with the metric that its quality is measured by."""

    metric: Metric


class PresetEntry(Spec):
    """A named system: its configuration, and a study document that runs it."""

    name: str
    title: str
    paper: str
    description: str = Field(description="what it is, and what differs from the source")
    architecture: dict[str, Any]
    parametrization: dict[str, Any]
    training: dict[str, Any]
    spec: dict[str, Any] = Field(description="a study of this one trial, ready to be sent")


class Catalog(Spec):
    """What can be named, and what goes with what."""

    architectures: tuple[CatalogEntry, ...]
    parametrizations: tuple[CatalogEntry, ...]
    tasks: tuple[TaskEntry, ...]
    combinations: dict[str, tuple[str, ...]] = Field(
        description="architecture -> the parametrizations that are defined on its weights"
    )
    refusals: dict[str, dict[str, str]] = Field(
        description="architecture -> parametrization -> why it is not defined on its weights"
    )
    presets: tuple[PresetEntry, ...]


@cache
def catalog() -> Catalog:
    """The catalog of this program; it does not change while the program runs."""
    refusals = _refusals()
    return Catalog(
        architectures=tuple(map(_entry, ARCHITECTURES)),
        parametrizations=tuple(map(_entry, PARAMETRIZATIONS)),
        tasks=tuple(
            TaskEntry(**_entry(variant).model_dump(by_alias=True), metric=variant.example().metric)
            for variant in TASKS
        ),
        combinations={
            architecture: tuple(kind for kind in PARAMETRIZATION_KINDS if kind not in refused)
            for architecture, refused in refusals.items()
        },
        refusals=refusals,
        presets=tuple(map(_preset_entry, PRESETS.values())),
    )


def _entry(
    variant: type[AnyArchitecture] | type[AnyFamily] | type[AnyTask],
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
        spec={
            "name": preset.title,
            "task": preset.task.model_dump(mode="json", exclude={"facts"}),
            "architectures": [preset.architecture.kind],
            "parametrizations": [preset.parametrization.kind],
            "presets": [preset.name],
            "budget": {"trials": 1},
        },
    )


def _refusals() -> dict[str, dict[str, str]]:
    """The pairs that are not defined, asked of the space of everything."""
    space = ModelSpace(
        StudySpec(
            task=TASKS[0].example(),
            architectures=tuple(ARCHITECTURE_KINDS),
            parametrizations=tuple(PARAMETRIZATION_KINDS),
        )
    )
    return {
        architecture: {
            parametrization: sentence
            for parametrization in PARAMETRIZATION_KINDS
            if (
                sentence := space.refusal(
                    Candidate(architecture=architecture, parametrization=parametrization)
                )
            )
        }
        for architecture in ARCHITECTURE_KINDS
    }
