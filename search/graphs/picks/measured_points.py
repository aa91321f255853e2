"""What was measured of a trial, and whether another can still be as good."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from search.graphs.picks.costs_of_trials import Costs, Objective
from search.graphs.picks.pick import Picks

REACH = 1.5
"""How many times the loss on the first eighth may be that of a file that costs no more."""
_SMALLEST_LOSS = 1e-9


@dataclass(frozen=True, eq=False)
class Measured:
    """One trial's file."""

    picks: Picks
    costs: Costs
    early_loss: float
    """On the first eighth of the choosing part."""
    loss: float | None
    """On the whole choosing part; None: the first eighth was out of reach, the rest not run."""

    @property
    def complete(self) -> bool:
        """Whether the whole choosing part was answered."""
        return self.loss is not None


def front_of(found: Iterable[Measured], objectives: Sequence[Objective]) -> list[Measured]:
    """The complete ones that no other is better than in all of loss and costs, by rising costs.

    Of equals the first one.
    """
    complete = [one for one in found if one.loss is not None]
    values = [(*one.costs.values(objectives), one.loss or 0.0) for one in complete]
    kept = [
        place
        for place, own in enumerate(values)
        if not any(
            _dominates(other, own) or (other == own and at < place)
            for at, other in enumerate(values)
        )
    ]
    return [complete[place] for place in sorted(kept, key=lambda place: values[place])]


def out_of_reach(
    early_loss: float, costs: Costs, front: Iterable[Measured], objectives: Sequence[Objective]
) -> bool:
    """Whether a file that costs no more loses less than two thirds of it on the same samples."""
    own = costs.values(objectives)
    return any(
        max(other.early_loss, _SMALLEST_LOSS) * REACH < early_loss
        and all(a <= b for a, b in zip(other.costs.values(objectives), own, strict=True))
        for other in front
    )


def _dominates(one: tuple[float, ...], other: tuple[float, ...]) -> bool:
    return one != other and all(a <= b for a, b in zip(one, other, strict=True))
