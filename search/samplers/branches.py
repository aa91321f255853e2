"""A sampler for each architecture with each parametrization, and a rule which of them is next.

The rule is pure functions, which a replay drives as the service does. Letters: N trials, B
branches, C costs, each of which is minimised.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Literal

import moocore  # pyright: ignore[reportMissingTypeStubs]
import numpy as np
from numpy.typing import NDArray
from optuna.samplers import BaseSampler
from optuna.study import StudyDirection
from pydantic import Field

from search.documents.objectives import OBJECTIVE_KINDS
from search.samplers.adapters.frozen import frozen, values_of
from search.samplers.adapters.in_memory import has_ended, suggested
from search.samplers.gp import Gp
from search.samplers.modelling.acquisition import undominated
from search.samplers.modelling.axes import costs_of, natural_log_error
from search.samplers.modelling.branching import Branch, branches_of, narrowed
from search.samplers.modelling.candidates import stands
from search.samplers.modelling.gaussian_process import Array
from search.samplers.nsga2 import Nsga2
from search.samplers.nsga3 import Nsga3
from search.samplers.random import Random
from search.samplers.sampler import Past, Sampler, SamplerContext, Space, WholeSampler
from search.samplers.tpe import Tpe
from search.spaces import Scalar

InnerSampler = Annotated[Tpe | Random | Nsga2 | Nsga3 | Gp, Field(discriminator="kind")]


class Branches(Sampler):
    """One sampler per architecture and parametrization, and more suggestions where more is gained.

    Each branch is searched by a sampler of its own, which sees only the branch's trials and all of
    its dimensions. First every branch gets a few suggestions; then one is as likely as its newest
    trials added hypervolume to what the other branches have found; none falls below a least share.
    Use it where every candidate has to be searched with all of its dimensions, or for `gp`: on the
    benchmark's digits it needs more epochs than `tpe` or `known_cost` over the whole space.
    """

    kind: Literal["branches"] = "branches"
    sampler: InnerSampler = Field(
        default=Tpe(startup_trials=2),
        description="what searches each branch; its start-up trials and its population are those "
        "of one branch",
    )
    startup_trials: int = Field(
        default=2,
        ge=1,
        le=1_000_000,
        description="first suggestions of every branch, before any has more",
    )
    least_share: float = Field(
        default=0.3,
        ge=0,
        le=1,
        description="share of all suggestions that is dealt out evenly: of B branches each gets "
        "a B-th of it at least",
    )

    def build_for(self, study: SamplerContext, /, *, seed: int) -> BaseSampler:
        """A sampler for one suggestion, which follows from `seed` and the study's past."""

        def choose(number: int) -> Mapping[str, Scalar]:
            past = study.past()
            own = [trial for trial in past.trials if trial.number < number]
            past = replace(past, trials=own)
            pins = study.pins(number)
            # What a trial shares with others that train beside it may name the branch already.
            branches = [one for one in branches_of(study.space) if one.agrees(pins)]
            branch = branches[self._next(study, past, branches, np.random.default_rng(seed))]
            return self._within(narrowed(replace(study, past=lambda: past), branch), seed=seed)

        return WholeSampler(study.space.dimensions, choose, seed=seed)

    def fault(self, space: Space, objectives: Sequence[str], /) -> str | None:
        """What the inner sampler has against one of the branches."""
        faults = (self.sampler.fault(branch, objectives) for branch in branches_of(space))
        return next((f"within a branch, {fault}" for fault in faults if fault is not None), None)

    def _next(
        self,
        study: SamplerContext,
        past: Past,
        branches: Sequence[Branch],
        generator: np.random.Generator,
    ) -> int:
        """The index of the branch that gets the next suggestion."""
        found = gains_by_number(study, past, branches)
        trials = [[t for t in past.trials if branch.is_of(t)] for branch in branches]
        warm_start = [sum(map(branch.holds, study.knowledge.trials)) for branch in branches]
        allotment = Allotment(startup=self.startup_trials, least_share=self.least_share)
        return allotment.next(
            [len(own) for own in trials],
            warm_start,
            [worth([found.get(trial.number, 0.0) for trial in own]) for own in trials],
            np.random.default_rng(study.seed).permutation(len(branches)).tolist(),
            generator,
        )

    def _within(self, study: SamplerContext, *, seed: int) -> Mapping[str, Scalar]:
        """The inner sampler's suggestion for a branch."""
        directions = {
            name: StudyDirection[(kind.direction or study.metric.direction).upper()]
            for name, kind in OBJECTIVE_KINDS.items()
        }
        known = [frozen(trial, study, ended=has_ended(trial)) for trial in study.past().trials]
        return suggested(
            self.sampler.build_for(study, seed=seed),
            study.space,
            [trial for trial in known if trial is not None],
            [directions[name] for name in study.objectives],
        )


def gains_by_number(
    study: SamplerContext, past: Past, branches: Sequence[Branch]
) -> Mapping[int, float]:
    """What each complete trial of a branch added, see `Allotment`."""
    samples = past.validation_samples
    numbers: list[int] = []
    owners: list[int] = []
    rows: list[list[float]] = []
    for trial in past.trials:
        values = values_of(trial, study.objectives)
        owner = next((i for i, branch in enumerate(branches) if branch.is_of(trial)), None)
        if has_ended(trial) and stands(trial) and values and owner is not None:
            numbers.append(trial.number)
            owners.append(owner)
            rows.append(costs_of(values, study.objectives, study.metric, samples=samples))
    if not rows:
        return {}
    costs = np.array(rows)
    # In the costs, as for `known_cost`: far beyond the dearest, only extremes would count.
    reference = costs.max(axis=0) + 0.05
    if "quality" in study.objectives:
        baseline = natural_log_error(study.metric.baseline, study.metric, samples=samples)
        reference[study.objectives.index("quality")] = baseline
    return dict(zip(numbers, gains(costs, np.array(owners), reference).tolist(), strict=True))


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
    others with all they have makes it the same in whatever order they came; counting its own
    earlier trials lets it fall as a branch is used up. Trials that run, were stopped or broke a
    limit have added nothing, so that parallel suggestions spread.

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
        others = costs[branches != branch]
        front = others[undominated(others)]
        volume = _volume(front, reference)
        for place in np.flatnonzero(branches == branch):
            own = costs[place]
            if (front <= own).all(axis=1).any():
                continue
            front = np.concatenate([front[~(own <= front).all(axis=1)], own[None]])
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
