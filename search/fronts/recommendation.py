"""Which point of a front to take: the smallest within noise, the knee, the smallest of a loss."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from search.documents.fronts import ObjectiveInfo
from search.documents.objectives import OBJECTIVE_KINDS, Objective
from search.documents.recommendations import Choice, Recommendation, Rule
from search.fronts.noise import Noise

MAX_QUALITY_LOSS: Final = 0.01
"""The loss that is allowed where nobody says another."""

_LEAST_FOR_A_KNEE: Final = 4


@dataclass(frozen=True)
class Candidate:
    """A point of a front, as far as it is compared."""

    trial: int
    quality: float
    cost: float
    standard_error: float = 0.0
    """Of the mean over its seeds; 0 for a single one, of which it is not known."""
    seeds: int = 1
    """How many `quality` is the mean of."""


def cost_of(infos: Sequence[ObjectiveInfo]) -> Objective | None:
    """What small means: the first objective that is a cost; None for a front without quality."""
    names = [info.name for info in infos]
    if "quality" not in names:
        return None
    return next((name for name in OBJECTIVE_KINDS if name != "quality" and name in names), None)


def recommend(
    points: Sequence[Candidate],
    infos: Sequence[ObjectiveInfo],
    *,
    noise: Noise | None,
    max_quality_loss: float = MAX_QUALITY_LOSS,
    among: str = "",
) -> Recommendation | None:
    """The points worth a look; None for an empty front, and for one of quality or of costs alone.

    Of equals the smaller one is taken, and of equal sizes the lower number.

    Args:
        points: those of the front; one whose quality or cost is no number counts for nothing.
        infos: the objectives of the front.
        noise: of quality, where it is known.
        max_quality_loss: in the metric's own unit, 0 or more.
        among: a sentence on which points these are, where they are not all of the front.
    """
    cost = cost_of(infos)
    known = [point for point in points if math.isfinite(point.quality + point.cost)]
    if cost is None or not known:
        return None
    by_name = {info.name: info for info in infos}
    front = _Front(known, by_name["quality"], by_name[cost])
    best = front.best
    within = None if noise is None else front.within_noise(noise)
    knee = front.knee()
    cheap = front.smallest(lambda point: front.loss(point) <= max_quality_loss)
    found = {
        "smallest_within_noise": within,
        "knee": knee,
        "max_quality_loss": cheap,
    }
    leads: dict[str, str] = {
        "smallest_within_noise": "Smallest within noise of the best",
        "knee": "Knee of the front",
        "max_quality_loss": f"Smallest that loses at most {max_quality_loss:g}",
    }
    rules: tuple[Rule, ...] = ("smallest_within_noise", "knee", "max_quality_loss")
    choices = {
        rule: Choice(rule=rule, trial=point.trial, words=f"{leads[rule]}: {front.words(point)}.")
        for rule in rules
        if (point := found[rule]) is not None
    }
    chance = f"Noise follows from {noise.samples:,} validation samples" if noise else ""
    unknown = f"The noise of {front.quality.metric} is not known"
    return Recommendation(
        trial=next(iter(choices.values())).trial,
        best=best.trial,
        cost=cost,
        noise_samples=None if noise is None else noise.samples,
        smallest_within_noise=choices.get("smallest_within_noise"),
        knee=choices.get("knee"),
        max_quality_loss=max_quality_loss,
        within_loss=choices.get("max_quality_loss"),
        words=" ".join(
            [
                *(choice.words for choice in choices.values()),
                *([among] if among else []),
                f"{chance or unknown}; the same data choose and judge.",
            ]
        ),
    )


@dataclass(frozen=True)
class _Front:
    points: Sequence[Candidate]
    quality: ObjectiveInfo
    cost: ObjectiveInfo

    @property
    def best(self) -> Candidate:
        return min(self.points, key=lambda point: (-self._good(point), *self._size(point)))

    def loss(self, point: Candidate) -> float:
        """How much worse it is than the best, rid of what binary fractions add."""
        return round(self._good(self.best) - self._good(point), 12)

    def smallest(self, fits: Callable[[Candidate], bool]) -> Candidate:
        """Of those that fit; the best always does."""
        return min(filter(fits, self.points), key=self._size)

    def within_noise(self, noise: Noise) -> Candidate:
        best = self.best
        most = noise.variance(best.quality, best.standard_error)
        return self.smallest(
            lambda point: (
                self.loss(point)
                <= noise.margin(most, noise.variance(point.quality, point.standard_error))
            )
        )

    def knee(self) -> Candidate | None:
        """Furthest above the chord from the least to the largest cost."""
        if len(self.points) < _LEAST_FOR_A_KNEE:
            return None
        kind = OBJECTIVE_KINDS[self.cost.name]
        ends = sorted(self.points, key=lambda point: (kind.decades(point.cost), -self._good(point)))
        first, last = ends[0], ends[-1]
        width = kind.decades(last.cost) - kind.decades(first.cost)
        height = self._good(last) - self._good(first)
        if width <= 0 or height <= 0:
            return None

        def above(point: Candidate) -> float:
            across = (kind.decades(point.cost) - kind.decades(first.cost)) / width
            return (self._good(point) - self._good(first)) / height - across

        found = min(self.points, key=lambda point: (-round(above(point), 12), *self._size(point)))
        return found if above(found) > 0 else None

    def words(self, point: Candidate) -> str:
        best = self.best
        text = f"trial {point.trial}, {self._cost(point)}, {self._quality(point)}"
        if point.trial == best.trial:
            return f"{text}, the best"
        return f"{text} against {best.quality:.4g} of trial {best.trial} with {self._cost(best)}"

    def _good(self, point: Candidate) -> float:
        return point.quality if self.quality.direction == "maximize" else -point.quality

    def _size(self, point: Candidate) -> tuple[float, int]:
        cost = -point.cost if self.cost.direction == "maximize" else point.cost
        return cost, point.trial

    def _cost(self, point: Candidate) -> str:
        kind = OBJECTIVE_KINDS[self.cost.name]
        return kind.told.format(metric=self.quality.metric, value=kind.shown(point.cost))

    def _quality(self, point: Candidate) -> str:
        mean = f", the mean of {point.seeds} seeds" if point.seeds > 1 else ""
        return f"{self.quality.metric} {point.quality:.4g}{mean}"
