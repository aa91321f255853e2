"""Every combination of a space's values, once."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from optuna.samplers import BaseSampler

from search.samplers.modelling.paths import ways
from search.samplers.sampler import Sampler, SamplerContext, Space, WholeSampler
from search.spaces import ChoiceDimension, Dimension, IntegerDimension, RealDimension, Scalar
from storage.records import TrialOrigin

MOST_VALUES = 64
"""Integers that a range without a step may have."""

MOST_POINTS = 100_000


class Grid(Sampler):
    """Grid search: all combinations, in an order that the study's seed shuffles.

    Every range needs a step or few integers. When all are suggested, the study ends.
    """

    kind: Literal["grid"] = "grid"

    def build_for(self, study: SamplerContext, /, *, seed: int) -> BaseSampler:
        """A sampler for one suggestion: the point after those that were suggested before."""

        def choose(number: int) -> Mapping[str, Scalar]:
            suggested = sum(
                trial.origin == TrialOrigin.SAMPLER
                for trial in study.past().trials
                if trial.number < number
            )
            return _points(study.space).at(suggested, seed=study.seed)

        return WholeSampler(study.space.dimensions, choose, seed=seed)

    def fault(self, space: Space, _objectives: Sequence[str], /) -> str | None:
        """A dimension with too many values to go through, or too many points in all."""
        for dimension in space.dimensions.values():
            if (total := _count(dimension)) is None:
                return (
                    f"the grid has no end of values between the low and high of {dimension.name}; "
                    f"space.{dimension.name} has to be a value, options or a range with a step"
                )
            stepless = isinstance(dimension, IntegerDimension) and dimension.step == 1
            if stepless and total > MOST_VALUES:
                return (
                    f"the range of {dimension.name} has {total} values; allowed in a grid are "
                    f"{MOST_VALUES}, or space.{dimension.name} with a step"
                )
            # Its values are not even listed.
            if total > MOST_POINTS:
                return _too_many(total)
        total = _points(space).total
        if total <= MOST_POINTS:
            return None
        return _too_many(total)

    def size(self, space: Space, /) -> int:
        """How many points the grid has."""
        return _points(space).total


@dataclass(frozen=True)
class _Block:
    """The points that have the same options where an option decides what else is asked."""

    options: Mapping[str, Scalar]
    values: Mapping[str, Sequence[Scalar]]

    @property
    def size(self) -> int:
        return math.prod(len(values) for values in self.values.values())

    def at(self, index: int) -> dict[str, Scalar]:
        """The index-th point, the last dimension changing first."""
        found: dict[str, Scalar] = {}
        for name, values in reversed(list(self.values.items())):
            index, digit = divmod(index, len(values))
            found[name] = values[digit]
        return {**self.options, **found}


@dataclass(frozen=True)
class _Points:
    """All points, block by block."""

    blocks: Sequence[_Block]

    @property
    def total(self) -> int:
        return sum(block.size for block in self.blocks)

    def at(self, position: int, *, seed: int) -> dict[str, Scalar]:
        """The point at a position of the shuffled order."""
        index = int(np.random.default_rng(seed).permutation(self.total)[position])
        for block in self.blocks:
            if index < block.size:
                return block.at(index)
            index -= block.size
        raise IndexError(f"the grid has {self.total} points, not {position + 1}")


def _too_many(total: int) -> str:
    return f"the grid has {total} points or more; allowed are at most {MOST_POINTS}"


def _points(space: Space) -> _Points:
    """All points of a space: each way through its options, with all values of what it asks."""
    return _Points(
        tuple(
            _Block(
                way.options,
                {
                    name: _values(dimension)
                    for name, dimension in way.dimensions.items()
                    if name not in way.options
                },
            )
            for way in ways(space)
        )
    )


def _count(dimension: Dimension) -> int | None:
    """How many values a dimension has; None for all reals of a range."""
    match dimension:
        case IntegerDimension(low=low, high=high, step=step):
            return (high - low) // step + 1
        case RealDimension(low=low, high=high, step=step):
            return None if step is None else math.floor((high - low) / step + 1e-9) + 1
        case ChoiceDimension(options=options):
            return len(options)


def _values(dimension: Dimension) -> Sequence[Scalar]:
    match dimension:
        case ChoiceDimension(options=options):
            return options
        case IntegerDimension(low=low, high=high, step=step):
            return range(low, high + 1, step)
        case RealDimension(low=low, high=high, step=step):
            steps = _count(dimension) or 1
            return [min(high, low + index * (step or 0.0)) for index in range(steps)]
