"""Stopping by the hypervolume that a trial could still add at its exact costs."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Literal

import moocore  # pyright: ignore[reportMissingTypeStubs]
import numpy as np
from pydantic import Field

from models.spec import Spec
from search.stopping.curves import (
    Curve,
    Decision,
    Standings,
    Vector,
    go_on,
    rungs,
    standing_before,
)

_NEIGHBOURS = 20
"""How many finished trials tell what a trial may still improve by."""
_QUANTILES = (0.1, 0.3, 0.5, 0.7, 0.9)
_NEVER_STOPPED = 0x6E73
"""Keeps the draw of the trials that are never stopped apart from others of the same seed."""


class Rate(Spec):
    """As much per epoch as a share of what the study has lately gained per epoch.

    What a trial could add is the mean over what trials like it came to. For samplers that know
    nothing of costs.
    """

    kind: Literal["rate"] = "rate"
    share: float = Field(
        default=0.12, gt=0, le=1, description="of the study's own recent gain per epoch"
    )
    window: int = Field(
        default=10,
        ge=1,
        le=1_000_000,
        description="how far back `recent` goes, in trainings of a whole trial's epochs",
    )
    least: float = Field(
        default=1e-4, ge=0, lt=1, description="what has to be added in any case: of the hypervolume"
    )

    def judge(self, improvements: Vector, trial: Curve, epoch: int, front: "_Front") -> Decision:
        """Stop a trial that is expected to add less per epoch than the study otherwise does."""
        error = trial.errors[epoch - 1]
        quantiles = np.quantile(improvements, _QUANTILES)
        gain = float(np.mean([front.gain(error + q, trial.costs) for q in quantiles]))
        window = self.window * front.standings.epochs
        recent = (front.volume - front.volume_before(window)) / window
        left = front.standings.epochs - epoch
        threshold = max(self.least * front.volume, self.share * recent * left)
        return _compared(gain, threshold, front.volume)


class Fixed(Spec):
    """A fixed share of the hypervolume.

    What a trial could add is optimistic: what the luckiest of those like it came to. For samplers
    that propose little which is worth stopping, such as those that know what a trial costs.
    """

    kind: Literal["fixed"] = "fixed"
    share: float = Field(default=0.002, gt=0, lt=1, description="of the hypervolume")
    level: float = Field(
        default=0.1,
        gt=0,
        lt=1,
        description="the share of like trials that improved by more than is hoped for",
    )

    def judge(self, improvements: Vector, trial: Curve, epoch: int, front: "_Front") -> Decision:
        """Stop a trial that even with luck would add less than the share."""
        hope = float(np.quantile(improvements, self.level))
        gain = front.gain(trial.errors[epoch - 1] + hope, trial.costs)
        return _compared(gain, self.share * front.volume, front.volume)


AnyThreshold = Annotated[Rate | Fixed, Field(discriminator="kind")]


class ParetoGain(Spec):
    """Stop what adds too little hypervolume, at costs that are known before training.

    After an epoch a trial's error is carried to its end by what the finished trials with the
    nearest errors after that epoch improved by. The hypervolume that the front would gain from that
    error, at all that is known exactly of the trial, is compared with a threshold.

    Until enough trials have finished, a trial is stopped when two others that are at least as cheap
    were better after as many epochs.
    """

    kind: Literal["pareto_gain"] = "pareto_gain"
    min_epochs: int = Field(
        default=1, ge=1, le=100_000, description="no trial is stopped before this epoch"
    )
    spacing: int = Field(
        default=2,
        ge=2,
        le=100_000,
        description="trials are judged after `min_epochs`, `spacing` times as many, and so on",
    )
    threshold: AnyThreshold = Field(
        default=Fixed(),
        description="what a trial has to add: a `fixed` share of the hypervolume, or as much per "
        "epoch as the study's own `rate`",
    )
    startup_trials: int = Field(
        default=5, ge=1, le=1_000_000, description="finished trials before the gain is asked for"
    )
    startup_better: int = Field(
        default=2, ge=1, le=1_000_000, description="until then, how many better trials stop one"
    )
    never_stopped: float = Field(
        default=0.02,
        ge=0,
        le=1,
        description="share of trials, drawn by the seed, that are trained to their end whatever "
        "they promise, so that slow starters are seen",
    )

    def rungs(self, epochs: int) -> tuple[int, ...]:
        """The epochs of a trial's `epochs` after which it is judged."""
        return rungs(self.min_epochs, self.spacing, epochs=epochs)

    def spares(self, number: int, *, seed: int) -> bool:
        """Whether a trial is one of those that are never stopped."""
        random = np.random.default_rng(np.random.SeedSequence([seed, number, _NEVER_STOPPED]))
        return bool(random.random() < self.never_stopped)

    def decide(self, standings: Standings, number: int, epoch: int) -> Decision:
        """Whether a trial that has trained `epoch` epochs is stopped; deterministic."""
        if epoch not in self.rungs(standings.epochs):
            return go_on("it is not judged after this epoch")
        if self.spares(number, seed=standings.seed):
            return go_on("it is one of those that are never stopped")
        trial = standings.curves[number]
        better = standings.better(trial, epoch)
        if len(standings.finished) < self.startup_trials:
            why = f"fewer than {self.startup_trials} trials have finished{standing_before(better)}"
            return Decision(stop=len(better) >= self.startup_better, why=why, better=better)
        front = _Front(standings)
        improvements = _improvements(standings.finished, trial, epoch)
        decision = self.threshold.judge(improvements, trial, epoch, front)
        return replace(decision, why=decision.why + standing_before(better), better=better)


class _Front:
    """The finished trials' hypervolume, and what one more point would add to it."""

    def __init__(self, standings: Standings) -> None:
        self.standings = standings
        points = np.array([curve.final for curve in standings.finished])
        self._points = points[moocore.is_nondominated(points)]
        self.volume = self._volume(self._points)

    def gain(self, error: float, costs: Sequence[float]) -> float:
        """What a finished trial of this error and these costs would add."""
        point = np.array([[error, *costs]])
        return max(0.0, self._volume(np.concatenate([self._points, point])) - self.volume)

    def volume_before(self, epochs: int) -> float:
        """The hypervolume when the study's trials had trained this many epochs less."""
        ends = [c.ended_after for c in self.standings.curves.values() if c.ended_after is not None]
        then = max(ends, default=0) - epochs
        points = [
            curve.final
            for curve in self.standings.finished
            if curve.ended_after is not None and curve.ended_after <= then
        ]
        return self._volume(np.array(points)) if points else 0.0

    def _volume(self, points: Vector) -> float:
        return float(moocore.hypervolume(points, ref=self.standings.reference))


def _improvements(finished: Sequence[Curve], trial: Curve, epoch: int) -> Vector:
    """How the log errors of like trials changed from this epoch to their end, 0 or less each."""
    error = trial.errors[epoch - 1]
    near = sorted(finished, key=lambda curve: (abs(curve.errors[epoch - 1] - error), curve.number))
    return np.array([c.errors[-1] - c.errors[epoch - 1] for c in near[:_NEIGHBOURS]])


def _compared(gain: float, threshold: float, volume: float) -> Decision:
    stop = gain < threshold
    word = "less than" if stop else "at least"
    why = f"could add {gain:.3g} of {volume:.3g} hypervolume, {word} {threshold:.3g}"
    return Decision(stop=stop, why=why, gain=gain, threshold=threshold)
