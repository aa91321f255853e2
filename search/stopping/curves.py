"""What stopping rules read, the learning curves of a study, and what they answer.

Everything is a cost, in decades: log10 of the error, log10 of the parameter count, minus log10 of
the throughput, and so on. All but the error are known before a trial is trained.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Vector = NDArray[np.float64]

_SMALLEST_LOSS = 1e-9
_NAMED = 3
"""How many trials a sentence names."""


def log_error(
    value: float, direction: Literal["minimize", "maximize"], *, smallest: float = _SMALLEST_LOSS
) -> float:
    """log10 of how far a metric is from its best.

    Args:
        value: a metric that is minimised to 0, or maximised to 1.
        direction: which way is better.
        smallest: what errors below are raised to; for an accuracy, one sample's share.
    """
    error = 1 - value if direction == "maximize" else value
    return math.log10(max(error, smallest))


def best_so_far(errors: Sequence[float]) -> tuple[float, ...]:
    """The lowest error up to every epoch: the checkpoint of the best epoch is what counts."""
    return tuple(np.minimum.accumulate(np.asarray(errors, dtype=float)).tolist())


@dataclass(frozen=True, kw_only=True)
class Curve:
    """One trial as a stopping rule sees it."""

    number: int
    errors: tuple[float, ...]
    """log10 of the lowest validation error after epoch 1, 2, ...: it never rises."""
    costs: tuple[float, ...]
    """The objectives beside quality, as the study has them: log10 of what is to be small, -log10
    of what is to be large."""
    is_finished: bool = False
    """Whether it was trained to its budget."""
    ended_after: int | None = None
    """Epochs that the study's trials had trained in all when it ended; None while it runs."""

    def reached(self, epoch: int) -> bool:
        """Whether the trial has trained this epoch."""
        return len(self.errors) >= epoch

    def at(self, epoch: int) -> tuple[float, ...]:
        """All costs as they stood after an epoch, the error first."""
        return (self.errors[epoch - 1], *self.costs)

    @property
    def final(self) -> tuple[float, ...]:
        """All costs as they stand, the error first."""
        return self.at(len(self.errors))

    def is_as_cheap_as(self, other: "Curve") -> bool:
        """Whether nothing that is known before training is worse than the other's."""
        return all(a <= b for a, b in zip(self.costs, other.costs, strict=True))


@dataclass(frozen=True)
class Standings:
    """Where all trials of a study stand that have trained an epoch."""

    curves: Mapping[int, Curve]
    """By the trial's number."""
    reference: tuple[float, ...]
    """The costs that hypervolumes are measured from, the error's first."""
    epochs: int
    """What every trial is trained for unless it is stopped."""
    seed: int = 0
    """What a rule draws follows from it."""

    @cached_property
    def finished(self) -> tuple[Curve, ...]:
        """The trials that were trained to their budget, by number."""
        return tuple(c for _, c in sorted(self.curves.items()) if c.is_finished)

    def at_rung(self, epoch: int) -> tuple[Curve, ...]:
        """The trials that have trained this epoch, by number."""
        return tuple(c for _, c in sorted(self.curves.items()) if c.reached(epoch))

    def better(self, trial: Curve, epoch: int) -> tuple[int, ...]:
        """Trials that are as cheap and had a lower error after this epoch, the best of them first.

        Equally cheap trials count.
        """
        error = trial.errors[epoch - 1]
        ahead = [
            (other.errors[epoch - 1], other.number)
            for other in self.at_rung(epoch)
            if other.number != trial.number
            and other.errors[epoch - 1] < error
            and other.is_as_cheap_as(trial)
        ]
        return tuple(number for _, number in sorted(ahead))


@dataclass(frozen=True, kw_only=True)
class Decision:
    """What a rule says about a trial after an epoch."""

    stop: bool
    why: str
    """A sentence for the user, without the rule's name and the epoch."""
    better: tuple[int, ...] = ()
    """Trials that are as cheap and were better after as many epochs, the best of them first."""
    gain: float | None = None
    """The hypervolume that the trial could add; None where the rule went by something else."""
    threshold: float | None = None
    """The least that it has to add."""


def go_on(why: str) -> Decision:
    """Let the trial be trained further."""
    return Decision(stop=False, why=why)


def rungs(first: int, factor: int, *, epochs: int) -> tuple[int, ...]:
    """The epochs after which trials are judged: first, first * factor, ... below the last."""
    found: list[int] = []
    epoch = first
    while epoch < epochs:
        found.append(epoch)
        epoch *= factor
    return tuple(found)


def standing_before(better: Sequence[int]) -> str:
    """Who is better, as the end of a sentence; empty where nobody is."""
    if not better:
        return ""
    if len(better) == 1:
        return f"; {better[0]} stands before it"
    named = [str(number) for number in better[:_NAMED]]
    more = len(better) - len(named)
    last = f"{more} more" if more else named.pop()
    return f"; {', '.join(named)} and {last} stand before it"
