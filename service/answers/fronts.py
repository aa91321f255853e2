"""Fronts, and the figures that follow from a study's trials."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Literal

from pydantic import RootModel

from service.answers.base import Answer


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
    form: Literal["structured", "dense"] = "structured"
    slower: bool = False
    continues: int | None = None
    links: Mapping[str, str | None]


class Original(Answer):
    """The model that a study compresses, as it was uploaded."""

    model: str
    trial: int
    values: Mapping[str, float | None]
    test_quality: float | None = None
    on_front: bool


class Front(Answer):
    """The points that no other point beats in every objective."""

    objectives: list[FrontObjective]
    device: str | None = None
    hypervolume: float | None = None
    reference_point: dict[str, float] | None = None
    unconfirmed: str | None = None
    original: Original | None = None
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
