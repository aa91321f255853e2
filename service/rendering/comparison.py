"""Fronts of several studies side by side, for the page that compares them."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from service.api.fronts.schemas import FrontDocument, PointDocument
from service.api.studies.schemas import StudyDocument


@dataclass(frozen=True)
class ComparedStudy:
    """One of the studies, with its front."""

    study: StudyDocument
    front: FrontDocument

    @property
    def metric(self) -> str | None:
        """What quality is called; null where it is no objective."""
        return next((one.metric for one in self.front.objectives if one.name == "quality"), None)

    @property
    def maximizes(self) -> bool:
        """Whether more quality is better."""
        return any(
            one.name == "quality" and one.direction == "maximize" for one in self.front.objectives
        )

    @property
    def smallest(self) -> PointDocument | None:
        """The point with the fewest parameters."""
        return min(self.front.points, key=lambda one: one.values.parameters, default=None)


@dataclass(frozen=True)
class ComparedPoint:
    """A point of one of the fronts."""

    study: StudyDocument
    point: PointDocument
    leads: bool
    """Whether no point of any of the studies has fewer parameters and as good a quality."""


@dataclass(frozen=True)
class Comparison:
    """All studies that are compared."""

    studies: Sequence[ComparedStudy]

    @cached_property
    def metric(self) -> str | None:
        """The metric of all of them; null where they have different ones."""
        metrics = {(one.metric, one.maximizes) for one in self.studies}
        return next(iter(metrics))[0] if len(metrics) == 1 else None

    @cached_property
    def same_task(self) -> bool:
        """Whether all of them learn from the same data in the same way."""
        tasks = [one.study.spec["task"] for one in self.studies]
        known = [{name: task[name] for name in task if name != "facts"} for task in tasks]
        return all(task == known[0] for task in known)

    @cached_property
    def points(self) -> Sequence[ComparedPoint]:
        """The points of all fronts, those with few parameters first."""
        found = [(one, point) for one in self.studies for point in one.front.points]
        sign = -1.0 if self.studies and self.studies[0].maximizes else 1.0

        def cost(entry: tuple[ComparedStudy, PointDocument]) -> tuple[int, float]:
            quality = entry[1].values.quality
            return entry[1].values.parameters, float("inf") if quality is None else sign * quality

        best, leader = float("inf"), None
        points: list[ComparedPoint] = []
        for one, point in sorted(found, key=cost):
            _, quality = own = cost((one, point))
            # Another study's point with the same numbers is as good.
            leads = self.metric is not None and (quality < best or own == leader)
            if leads:
                best, leader = quality, own
            points.append(ComparedPoint(one.study, point, leads))
        return points
