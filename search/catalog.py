"""Everything that a study spec can name, read off the unions."""

from functools import cache
from typing import Any

from pydantic import Field

from models.architectures import ARCHITECTURES
from models.parametrizations import PARAMETRIZATIONS
from models.spec import Spec, kind_of
from search.errors import SpecRefused
from search.space import SearchSpace
from search.spec import StudySpec
from search.tasks import TASKS, Metric


class CatalogEntry(Spec):
    """An architecture or a parametrization."""

    kind: str
    title: str
    paper: str
    json_schema: dict[str, Any] = Field(alias="schema", description="JSON schema of its document")


class TaskEntry(CatalogEntry):
    """A task, with the metric that its quality is measured by."""

    metric: Metric


class Preset(Spec):
    """A spec that is ready to be sent."""

    name: str
    title: str
    paper: str
    spec: dict[str, Any]


class Catalog(Spec):
    """What can be named, and what goes with what."""

    architectures: tuple[CatalogEntry, ...]
    parametrizations: tuple[CatalogEntry, ...]
    tasks: tuple[TaskEntry, ...]
    combinations: dict[str, tuple[str, ...]] = Field(
        description="architecture -> the parametrizations that are defined on its weights"
    )
    presets: tuple[Preset, ...]


@cache
def catalog() -> Catalog:
    """The catalog of this program; it does not change while the program runs."""
    return Catalog(
        architectures=tuple(
            CatalogEntry(
                kind=kind_of(variant),
                title=variant.title,
                paper=variant.paper,
                schema=variant.model_json_schema(),
            )
            for variant in ARCHITECTURES
        ),
        parametrizations=tuple(
            CatalogEntry(
                kind=kind_of(variant),
                title=variant.title,
                paper=variant.paper,
                schema=variant.model_json_schema(),
            )
            for variant in PARAMETRIZATIONS
        ),
        tasks=tuple(
            TaskEntry(
                kind=kind_of(variant),
                title=variant.title,
                paper=variant.paper,
                schema=variant.model_json_schema(),
                metric=variant().metric,
            )
            for variant in TASKS
        ),
        combinations={
            kind_of(architecture): tuple(
                kind_of(parametrization)
                for parametrization in PARAMETRIZATIONS
                if _goes_together(kind_of(architecture), kind_of(parametrization))
            )
            for architecture in ARCHITECTURES
        },
        presets=(),
    )


def _goes_together(architecture: str, parametrization: str) -> bool:
    """Whether a study of this one candidate would be taken; asked of the search space itself."""
    spec = StudySpec(
        task=TASKS[0](), architectures=(architecture,), parametrizations=(parametrization,)
    )
    try:
        SearchSpace(spec)
    except SpecRefused:
        return False
    return True
