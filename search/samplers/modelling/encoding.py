"""Configurations as rows of numbers, for models of what they do."""

import math
from collections.abc import Iterable, Mapping

import numpy as np

from search.samplers.modelling.configurations_drawn import place_of
from search.samplers.modelling.gaussian_process import Array
from search.spaces import TRAINING, ChoiceDimension, Dimension, DrawnTrial, Scalar
from storage.records import TrialRecord

_ABSENT = 0.5
"""Where a number lies that a configuration does not have."""

_OUTSIDE = 0.5
"""How far beyond its range a number may lie: presets need not be in the space."""

PARAMETERS, DENSE_PARAMETERS = "parameters", "dense parameters"
"""Names of the counts among the values, which are features like the dimensions."""

COUNTS = 2
"""So many columns, the first ones, are of counts."""

_DECADES = 4.0
"""Over how many decades of a count its feature goes from 0 to 1."""


class Encoding:
    """Columns for every dimension of a space, and for the two counts that any model has.

    A number is its place in its range, an option one-hot of height 1 / sqrt 2: configurations that
    differ in one option are 1 apart.
    """

    def __init__(self, dimensions: Mapping[str, Dimension]) -> None:
        self._dimensions = dimensions
        self._places: dict[str, int] = {}
        self._bare = [0.0] * COUNTS
        for name, dimension in dimensions.items():
            self._places[name] = len(self._bare)
            is_choice = isinstance(dimension, ChoiceDimension)
            self._bare += [0.0] * len(dimension.options) if is_choice else [_ABSENT]

    @property
    def groups(self) -> list[int]:
        """`[D]`, which columns are of one kind: 0 sizes, 1 numbers of training, 2 options."""
        found = [0, 0]
        for name, dimension in self._dimensions.items():
            if isinstance(dimension, ChoiceDimension):
                found += [2] * len(dimension.options)
            else:
                found.append(int(name.startswith(f"{TRAINING}.")))
        return found

    def rows(self, configurations: Iterable[Mapping[str, Scalar | None]]) -> Array:
        """`[N, D]` of configurations, each by its values."""
        return np.array([self.row(values) for values in configurations])

    def row(self, values: Mapping[str, Scalar | None]) -> list[float]:
        """`[D]` of one configuration."""
        row = [*self._bare]
        for column, name in enumerate((PARAMETERS, DENSE_PARAMETERS)):
            if isinstance(count := values[name], int | float):
                row[column] = math.log10(max(1.0, float(count))) / _DECADES
        for name, value in values.items():
            dimension = self._dimensions.get(name)
            if isinstance(dimension, ChoiceDimension):
                if value in dimension.options:
                    row[self._places[name] + dimension.options.index(value)] = math.sqrt(0.5)
            elif dimension is not None and isinstance(value, int | float):
                place = place_of(dimension, value)
                row[self._places[name]] = min(1 + _OUTSIDE, max(-_OUTSIDE, place))
        return row


def values_of_draw(drawn: DrawnTrial) -> dict[str, Scalar | None]:
    """What an `Encoding` reads of a configuration."""
    model = drawn.spec.model
    return _values(
        drawn.hyperparameters,
        model.architecture.kind,
        model.parametrization.family,
        counts=(drawn.parameters, drawn.dense_parameters),
    )


def values_of_trial(trial: TrialRecord) -> dict[str, Scalar | None]:
    """What an `Encoding` reads of a trial."""
    values = {
        name: value
        for name, value in trial.hyperparameters.items()
        if isinstance(value, bool | int | float | str)
    }
    counts = (trial.parameters, trial.dense_parameters)
    return _values(values, trial.architecture, trial.parametrization, counts=counts)


def _values(
    hyperparameters: Mapping[str, Scalar | None],
    architecture: str,
    parametrization: str,
    *,
    counts: tuple[int, int],
) -> dict[str, Scalar | None]:
    return {
        **{name: value for name, value in hyperparameters.items() if value is not None},
        "architecture": architecture,
        # The dimension has the architecture's name where architectures differ in what fits them.
        "parametrization": parametrization,
        f"{architecture}.parametrization": parametrization,
        PARAMETERS: counts[0],
        DENSE_PARAMETERS: counts[1],
    }
