"""What the server answers, as the client reads it.

These are the documents of the HTTP contract from the reader's side: small, without the packages
that make them, and patient with fields that a newer server adds.
"""

from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, Generic, Literal, TypeAlias, TypeVar

from pydantic import BaseModel, ConfigDict, Field, RootModel

StudyState: TypeAlias = Literal["queued", "running", "paused", "finished", "cancelled", "failed"]

ENDED: frozenset[StudyState] = frozenset({"finished", "cancelled", "failed"})


class Answer(BaseModel):
    """The base of all answers: frozen, and newer fields are passed over."""

    model_config = ConfigDict(frozen=True, extra="ignore")


_A = TypeVar("_A", bound=Answer)


class Page(Answer, Generic[_A]):
    """One page of a list; `next_cursor` is null on the last."""

    items: list[_A]
    next_cursor: str | None = None


class FieldError(Answer):
    """One fault of a refused document: where, and what is wrong with it."""

    path: str = ""
    message: str


class Problem(Answer):
    """Why the server refused, as RFC 9457 has it."""

    type: str = "about:blank"
    title: str
    status: int
    detail: str = ""
    errors: list[FieldError] = Field(default_factory=list[FieldError])

    def sentences(self) -> list[str]:
        """What a person reads: the detail, then one line per fault that it does not say already."""
        detail = self.detail or self.title
        faults = [f"{error.path}: {error.message}".removeprefix(": ") for error in self.errors]
        return [detail, *(fault for fault in faults if fault not in detail)]


class TrialCounts(Answer):
    """How many trials of a study stand where."""

    total: int = 0
    queued: int = 0
    running: int = 0
    complete: int = 0
    stopped: int = 0
    infeasible: int = 0
    failed: int = 0
    cancelled: int = 0
    refused: int = 0

    @property
    def ended(self) -> int:
        """Trials that used up budget: those with an outcome, without what was never dispatched."""
        return self.complete + self.stopped + self.infeasible - self.refused + self.failed


class Progress(Answer):
    """How far a study is."""

    trials: TrialCounts
    epochs_trained: int
    wall_seconds: float
    device_hours: float
    hypervolume: float | None
    measuring_share: float | None
    eta_seconds: float | None


class Study(Answer):
    """A study: the document that was sent, and where it stands."""

    id: str
    name: str
    state: StudyState
    state_reason: str | None = None
    spec: dict[str, Any]
    created_at: datetime | None = None
    started_at: datetime | None = None
    finished_at: datetime | None = None
    progress: Progress
    links: Mapping[str, str | None]

    @property
    def ended(self) -> bool:
        """Whether nothing more will happen in it."""
        return self.state in ENDED


class Candidate(Answer):
    """An architecture with a parametrization that fits it."""

    architecture: str
    parametrization: str


class ParameterRange(Answer):
    """The smallest and the largest count of parameters in a space."""

    low: int
    high: int


class DryRun(Answer):
    """What a study would search; nothing was stored."""

    dimensions: list[dict[str, Any]]
    candidates: list[Candidate]
    parameter_range: ParameterRange


class FrontObjective(Answer):
    """One axis of a front."""

    name: str
    metric: str
    direction: Literal["maximize", "minimize"]
    unit: str | None = None


class FrontPoint(Answer):
    """One trial on the front, with where its files are."""

    trial: int
    values: Mapping[str, float | None]
    quality_mean: float | None = None
    quality_interval: tuple[float, float] | None = None
    seeds: int = 1
    on_front_by_mean: bool = True
    test_quality: float | None = None
    throughput_ratio: float | None = None
    architecture: str
    parametrization: str
    hyperparameters: dict[str, Any]
    continues: int | None = None
    links: Mapping[str, str | None]


class Front(Answer):
    """The points that no other point beats in every objective."""

    objectives: list[FrontObjective]
    device: str | None = None
    hypervolume: float | None = None
    reference_point: dict[str, float] | None = None
    unconfirmed: str | None = None
    points: list[FrontPoint]

    def ranked(self) -> list[FrontPoint]:
        """The points, best first in the first objective (quality, where it was asked for)."""
        if not self.objectives:
            return list(self.points)
        first = self.objectives[0]
        sign = -1.0 if first.direction == "maximize" else 1.0
        return sorted(self.points, key=lambda point: sign * (point.values[first.name] or 0.0))

    def best(self) -> FrontPoint | None:
        """The point that is best in the first objective; null while the front is empty."""
        return next(iter(self.ranked()), None)


class DimensionImportance(Answer):
    """One dimension, and what it did to one objective."""

    dimension: str
    importance: float
    trials: int
    trend: float | None = None
    medians: dict[str, float] | None = None


class ObjectiveImportance(Answer):
    """One objective and its dimensions, the most important first, or the reason for having none."""

    objective: FrontObjective
    trials: int
    best_share: float | None = None
    reason: str | None = None
    dimensions: list[DimensionImportance]


class Importance(Answer):
    """What each dimension did to each objective."""

    method: str
    objectives: list[ObjectiveImportance]


class HypervolumePoint(Answer):
    """The front from the moment on that a trial changed it."""

    trial: int | None = None
    epochs_trained: int | None = None
    wall_seconds: float | None = None
    at: datetime
    hypervolume: float
    points: int


class HypervolumePoints(RootModel[list[HypervolumePoint]]):
    """How the front's hypervolume grew, in order."""


class Trial(Answer):
    """One trial: its configuration and what came of it."""

    number: int
    outcome: str | None
    reason: str | None = None
    architecture: str
    parametrization: str
    hyperparameters: dict[str, Any]
    values: Mapping[str, float | None]
    test_quality: float | None = None
    test_metrics: dict[str, float] = Field(default_factory=dict[str, float])
    origin: str | None = None
    repeats: int | None = None
    continues: int | None = None
    stopping: dict[str, Any] | None = None
    attempts: list[dict[str, Any]] = Field(default_factory=list[dict[str, Any]])
    links: Mapping[str, str | None]


class Enqueued(Answer):
    """A trial that a user named; its number is null until the server has made it."""

    number: int | None
    links: Mapping[str, str | None]


class Event(Answer):
    """One thing that happened in a study; numbers count from 1 without gaps."""

    number: int
    kind: str
    payload: dict[str, Any]


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


class DatasetFacts(Answer):
    """What a data set holds."""

    problem: str
    samples: dict[str, int]
    steps: int
    shortest: int
    features: int
    outputs: int
    classes: list[str] | None = None
    class_counts: list[int] | None = None
    missing_values: int = 0


class Dataset(Answer):
    """A user's upload, and what was found in it."""

    id: str
    name: str
    sha256: str
    test_sha256: str | None = None
    size_bytes: int
    format: str
    options: dict[str, Any] = Field(default_factory=dict[str, Any])
    facts: DatasetFacts
    preview: list[dict[str, Any]] = Field(default_factory=list[dict[str, Any]])
    created_at: datetime | None = None
    links: Mapping[str, str | None]


class Downloaded(Answer):
    """A file that arrived whole: its bytes have the digest that the server named."""

    path: Path
    sha256: str
    size: int
