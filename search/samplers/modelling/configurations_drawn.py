"""Sources of whole configurations that need no Optuna: at random, and near another one."""

import math
from collections.abc import Mapping

import numpy as np

from search.spaces import ChoiceDimension, Dimension, IntegerDimension, RealDimension, Scalar

_KEPT = 0.6
"""How likely a mutation keeps a value."""

_STEP = 0.15
"""Standard deviation of a mutated number, in units of its range (of its logarithm's)."""


class RandomSource:
    """Answers uniformly, on the logarithm where the dimension says so."""

    def __init__(self, generator: np.random.Generator) -> None:
        self._generator = generator

    def answer(self, dimension: Dimension) -> Scalar:
        """A value of the dimension."""
        if isinstance(dimension, ChoiceDimension):
            return dimension.options[int(self._generator.integers(len(dimension.options)))]
        return number_at(dimension, float(self._generator.random()))


class MutatingSource:
    """Answers near another configuration, and at random what that one does not have."""

    def __init__(self, values: Mapping[str, Scalar | None], generator: np.random.Generator) -> None:
        self._values = values
        self._generator = generator
        self._random = RandomSource(generator)

    def answer(self, dimension: Dimension) -> Scalar:
        """The other's value, or one near it; of options, now and then another."""
        value = self._values.get(dimension.name)
        if value is None or not dimension.contains(value):
            return self._random.answer(dimension)
        if self._generator.random() < _KEPT:
            return value
        if isinstance(dimension, ChoiceDimension) or isinstance(value, str):
            return self._random.answer(dimension)
        place = place_of(dimension, value) + _STEP * float(self._generator.standard_normal())
        return number_at(dimension, min(1.0, max(0.0, place)))


def number_at(dimension: IntegerDimension | RealDimension, place: float) -> int | float:
    """The number at a place of [0, 1] in its range; every integer has the same width."""
    low, high = _ends(dimension)
    if dimension.log:
        number = math.exp(math.log(low) + place * (math.log(high) - math.log(low)))
    else:
        number = low + place * (high - low)
    number = min(float(dimension.high), max(float(dimension.low), number))
    if dimension.step is None:
        return number
    steps = round((number - dimension.low) / dimension.step)
    most = math.floor((dimension.high - dimension.low) / dimension.step + 1e-9)
    # Sums of steps round: 0.1 three times is more than 0.3.
    return min(dimension.low + min(steps, most) * dimension.step, dimension.high)


def place_of(dimension: IntegerDimension | RealDimension, number: float) -> float:
    """Where in its range a number lies: 0 at its lower end and 1 at its upper end."""
    low, high = _ends(dimension)
    if dimension.log:
        number = max(number, 1e-12)
        return (math.log(number) - math.log(low)) / (math.log(high) - math.log(low))
    return (number - low) / (high - low)


def _ends(dimension: IntegerDimension | RealDimension) -> tuple[float, float]:
    """The range, half a step wider at both ends where it is a grid."""
    half = 0.0 if dimension.step is None else dimension.step / 2
    return dimension.low - half, dimension.high + half
