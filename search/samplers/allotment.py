"""Which branch of a space gets the next suggestion.

Pure functions: a replay drives them as the service does.

Letters: N trials, B branches, C costs, each of which is minimised.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import moocore  # pyright: ignore[reportMissingTypeStubs]
import numpy as np
from numpy.typing import NDArray

from search.samplers.gaussian_process import Array

FADING = 0.8
"""What a trial's gain counts, against that of the next one in its branch."""


@dataclass(frozen=True, kw_only=True)
class Allotment:
    """The rule by which suggestions are dealt out to branches.

    1. A branch that has fewer trials than `startup` comes first, the one with the fewest.
    2. So does one with fewer than `least_share / B` of all trials: no branch starves.
    3. Otherwise chance decides, and a branch is as likely as its worth.

    A branch's worth is the mean of what each of its trials added to the hypervolume of all that
    the other branches have found and its own earlier trials, the newest counting most. Counting the
    others with all they have makes it the same whoever came first; counting its own earlier trials
    lets it fall as a branch is used up. Trials that run, were stopped or broke a limit have added
    nothing, so that parallel suggestions spread.

    Probabilities in proportion to rewards, with a floor, are probability matching (Goldberg 1990;
    Thierens 2005, "An adaptive pursuit strategy for allocating operator probabilities", section 2),
    which needs no scale of rewards: gains shrink as a search goes on. The floor is here a rule of
    its own, so that it holds for certain.
    """

    startup: int
    least_share: float

    def next(
        self,
        begun: Sequence[int],
        known: Sequence[int],
        worths: Sequence[float],
        order: Sequence[int],
        generator: np.random.Generator,
    ) -> int:
        """The branch that gets the next suggestion.

        Args:
            begun: `[B]` trials of each branch, whatever became of them.
            known: `[B]` trials that its sampler begins with besides, of other studies.
            worths: `[B]`, see `worth`.
            order: the branches, in the order in which ties go.
            generator: the chance of this suggestion.
        """
        fewest = min(order, key=lambda branch: begun[branch] + known[branch])
        if begun[fewest] + known[fewest] < self.startup:
            return fewest
        fewest = min(order, key=lambda branch: begun[branch])
        if begun[fewest] < self.least_share * sum(begun) / len(begun):
            return fewest
        total = sum(worths)
        shares = [worth / total for worth in worths] if total > 0 else None
        return int(generator.choice(len(begun), p=shares))


def gains(costs: Array, branches: NDArray[np.intp], reference: Array) -> Array:
    """What each trial added `[N]` to what other branches have, and its own had before it.

    Args:
        costs: `[N, C]`, in the order of the trials.
        branches: `[N]`, of each trial.
        reference: `[C]`, from where the hypervolume is measured.
    """
    found = np.zeros(len(costs))
    for branch in np.unique(branches):
        front = costs[branches != branch]
        volume = _volume(front, reference)
        for place in np.flatnonzero(branches == branch):
            front = np.concatenate([front, costs[place : place + 1]])
            larger = _volume(front, reference)
            found[place] = larger - volume
            volume = larger
    return np.maximum(found, 0.0)


def worth(gains_of_branch: Sequence[float]) -> float:
    """The mean of a branch's gains, oldest first, the newest counting most."""
    weights = FADING ** np.arange(len(gains_of_branch))[::-1]
    return float(weights @ np.array(gains_of_branch) / weights.sum()) if len(weights) else 0.0


def _volume(costs: Array, reference: Array) -> float:
    return float(moocore.hypervolume(costs, ref=reference)) if len(costs) else 0.0
