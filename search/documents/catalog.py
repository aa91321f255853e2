"""Everything that a study can name."""

from typing import Any, Literal

from pydantic import Field

from models.spec import Spec


class Metric(Spec):
    """The number by which a task's models are compared."""

    name: str
    direction: Literal["maximize", "minimize"]
    unit: str
    baseline: float
    """The quality of the trivial predictor; each task says which one that is."""

    def is_better(self, value: float, than: float) -> bool:
        """Whether `value` is strictly better than `than`."""
        return value > than if self.direction == "maximize" else value < than


class CatalogEntry(Spec):
    """An architecture or a parametrization."""

    kind: str
    title: str
    paper: str
    json_schema: dict[str, Any] = Field(alias="schema", description="JSON schema of its document")


class ArchitectureEntry(CatalogEntry):
    """An architecture, and whether it has kernels."""

    compiled: bool = Field(
        description="whether compiled kernels compute its layers, those of `urnn` with "
        "`unitary_fft` alone; if not, they run step by step in torch's operations, which takes "
        "several times as long"
    )


class RuleEntry(Spec):
    """A sampler, a stopping rule or an export."""

    kind: str
    summary: str = Field(description="what it is, in a sentence")
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
    rows: tuple[str, ...] = Field(
        default=(), description="rows of the papers' tables that it is: table, colon, key"
    )
    spec: dict[str, Any] = Field(description="a study of this one trial, ready to be sent")


class Catalog(Spec):
    """What can be named, and what goes with what."""

    architectures: tuple[ArchitectureEntry, ...]
    parametrizations: tuple[CatalogEntry, ...]
    tasks: tuple[TaskEntry, ...]
    combinations: dict[str, tuple[str, ...]] = Field(
        description="architecture -> the parametrizations that are defined on its weights"
    )
    refusals: dict[str, dict[str, str]] = Field(
        description="architecture -> parametrization -> why it is not defined on its weights"
    )
    presets: tuple[PresetEntry, ...]
    samplers: tuple[RuleEntry, ...]
    stopping_rules: tuple[RuleEntry, ...] = Field(description="what `early_stopping` may be")
    exports: tuple[RuleEntry, ...] = Field(description="what a trained model can be had as")
