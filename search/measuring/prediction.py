"""How fast a shape is that was not measured, told by those that were: a value with its interval.

A Gaussian process on the logarithm of what was measured, over the logarithms of what a shape
computes and keeps, with offsets for its cell: architecture, parametrization and their options. Its
prior says that time grows about linearly with what is computed, and that cells differ by factors;
what it learns from few shapes is the rest. The measuring process decides on the device: it
knows of one device, one protocol and one quantity.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from models.model import ModelSpec
from models.report import model_totals
from storage.records import Json

LEAST_SHAPES = 10
"""Of fewer measured shapes nothing is predicted."""

_MOST_SHAPES = 300
"""More are not looked at: the newest are of the machine as it is now."""

_CONFIDENCE = 0.95
_OUTLIER = 2.5
"""Standard deviations from what the others predict, beyond which a measurement counts less."""

# Variances of the prior, in squared natural logarithms.
_LEVEL, _SLOPES, _ARCHITECTURES, _CELLS, _OPTIONS = 1.0, 0.1, 0.1, 0.01, 0.01
_PARAMETRIZATIONS = (0.03, 0.1)
_CURVES = (0.01, 0.05)
_CURVES_OF_CELLS = (0.001, 0.01)
_LENGTHS = (0.5, 1.0)
"""Over which distance of its logarithms a shape's time bends."""
_NOISES = (0.0005, 0.002, 0.006)
_SHARED = (0.003, 0.01, 0.04)
"""What everything measured at one time has in common: how slow the machine was just then."""

_Array = NDArray[np.float64]


class Prediction(NamedTuple):
    """What a measurement would give: the middle, and where it lies with 95 %."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class ShapeFacts:
    """What the time of a shape follows from."""

    architecture: str
    parametrization: str
    options: str
    """All else about the model that is no number."""
    sizes: tuple[float, ...]
    """Logarithms of its multiply-adds and those of its dense baseline, of its parameters, and of
    the states that it goes through."""


def facts_of(model: ModelSpec) -> ShapeFacts:
    """The facts of a model; it is laid out without memory.

    Raises:
        SpecError: the model cannot be built.
    """
    sizes = (
        model_totals(model).multiply_adds,
        model_totals(model.dense_twin()).multiply_adds,
        model.parameter_count(),
        model.architecture.saved_numbers(model.signature, batch_size=1),
    )
    document = model.model_dump(mode="json", include={"architecture", "parametrization", "bits"})
    return ShapeFacts(
        architecture=model.architecture.kind,
        parametrization=model.parametrization.family,
        options=" ".join(_options(document)),
        sizes=tuple(math.log(max(1, size)) for size in sizes),
    )


def baseline_facts(model: ModelSpec) -> ShapeFacts | None:
    """Those of the dense baseline that a model is measured with; None where it is its own.

    It runs on whatever is fastest for it, and so has options of its own.

    Raises:
        SpecError: the model cannot be built.
    """
    baseline = model.dense_twin()
    return None if baseline == model.unrounded else replace(facts_of(baseline), options="baseline")


class SpeedModel:
    """Predicts one positive quantity, such as samples per second, for shapes by their facts."""

    def __init__(
        self,
        shapes: Sequence[ShapeFacts],
        values: Sequence[float],
        *,
        together: Sequence[int] | None = None,
    ) -> None:
        """Learn from measured shapes, oldest first; a shape may stand there several times.

        What was measured in turn, and so met the same noise, has the same number in `together`;
        null: all by itself.

        Raises:
            ValueError: there are fewer than `LEAST_SHAPES`.
        """
        if len(shapes) < LEAST_SHAPES:
            raise ValueError(f"{len(shapes)} shapes predict nothing; at least {LEAST_SHAPES} do")
        self._shapes = list(shapes[-_MOST_SHAPES:])
        logs = np.log(np.array(values[-_MOST_SHAPES:], float))
        self._middle = float(np.median(logs))
        self._centre = np.array([one.sizes for one in self._shapes]).mean(axis=0)
        between = _Between(self._shapes, self._shapes, self._centre)
        fits = [_Fit(prior, between.covariance(prior), logs - self._middle) for prior in _priors()]
        best = max(fits, key=_likelihood)
        if together is not None:
            same = _equal(together[-_MOST_SHAPES:], together[-_MOST_SHAPES:])
            covariance = between.covariance(best.prior)
            # Among the noises alone: all else with them would be four times as many fits.
            shared = [
                _Fit(
                    replace(best.prior, noise=noise, shared=common),
                    covariance + common * same,
                    logs - self._middle,
                )
                for noise, common in product(_NOISES, _SHARED)
            ]
            best = max([best, *shared], key=_likelihood)
        self._fit = best.without_outliers()
        # As if half of the shapes had gone into the choice of a prior.
        freedom = max(3, len(self._shapes) // 2)
        self._quantile = _student_quantile(freedom) * max(1.0, best.excess)

    def predict(self, shapes: Sequence[ShapeFacts]) -> list[Prediction]:
        """What measuring each of the shapes once would give."""
        if not shapes:
            return []
        fit = self._fit
        across = _Between(shapes, self._shapes, self._centre).covariance(fit.prior)
        own = _alone(shapes, self._centre, fit.prior)
        middles = self._middle + across @ fit.weights
        explained = np.sum((across @ fit.whitening.T) ** 2, axis=1)
        noise = fit.prior.noise + fit.prior.shared
        spreads = np.sqrt(np.maximum(own - explained, 0.0) + noise) * self._quantile
        return [
            Prediction(math.exp(middle), math.exp(middle - spread), math.exp(middle + spread))
            for middle, spread in zip(middles.tolist(), spreads.tolist(), strict=True)
        ]


@dataclass(frozen=True)
class _Prior:
    parametrizations: float
    curves: float
    curves_of_cells: float
    length: float
    noise: float
    shared: float = 0.0


def _priors() -> Iterator[_Prior]:
    for numbers in product(_PARAMETRIZATIONS, _CURVES, _CURVES_OF_CELLS, _LENGTHS, _NOISES):
        yield _Prior(*numbers)


class _Between:
    """What two lists of shapes have in common, of which all covariances are made."""

    def __init__(
        self, left: Sequence[ShapeFacts], right: Sequence[ShapeFacts], centre: _Array
    ) -> None:
        own, other = (np.array([one.sizes for one in side]) - centre for side in (left, right))
        self._products = own @ other.T
        self._squares = ((own[:, None, :] - other[None, :, :]) ** 2).sum(axis=2)
        self._architectures = _equal(
            [s.architecture for s in left], [s.architecture for s in right]
        )
        self._parametrizations = _equal(
            [s.parametrization for s in left], [s.parametrization for s in right]
        )
        self._options = _equal([s.options for s in left], [s.options for s in right])

    def covariance(self, prior: _Prior) -> _Array:
        """`[left, right]`, of the noiseless logarithms."""
        cells = self._architectures * self._parametrizations
        near = np.exp(-0.5 * self._squares / prior.length**2)
        return (
            _LEVEL
            + _SLOPES * self._products
            + _ARCHITECTURES * self._architectures
            + prior.parametrizations * self._parametrizations
            + (_CELLS + _OPTIONS * self._options) * cells
            + (prior.curves + prior.curves_of_cells * cells) * near
        )


def _alone(shapes: Sequence[ShapeFacts], centre: _Array, prior: _Prior) -> _Array:
    """`[shapes]`: the covariance of each with itself."""
    squares = ((np.array([one.sizes for one in shapes]) - centre) ** 2).sum(axis=1)
    level = _LEVEL + _ARCHITECTURES + prior.parametrizations + _CELLS + _OPTIONS
    return level + prior.curves + prior.curves_of_cells + _SLOPES * squares


class _Fit:
    """A process with one prior: how likely it makes what was measured, and what it makes of it."""

    def __init__(
        self, prior: _Prior, covariance: _Array, values: _Array, noises: _Array | None = None
    ) -> None:
        self.prior = prior
        self._covariance, self._values = covariance, values
        self._noises = np.full(len(values), prior.noise) if noises is None else noises
        factor = np.linalg.cholesky(covariance + np.diag(self._noises))
        self.whitening = np.asarray(np.linalg.inv(factor), float)
        """`[N, N]`, V of the inverse covariance with noise, `V^T V`."""
        self.weights: _Array = self.whitening.T @ (self.whitening @ values)
        halves = float(np.log(np.diag(factor)).sum())
        self.log_likelihood = -0.5 * float(values @ self.weights) - halves

    @property
    def excess(self) -> float:
        """By how much what each is off by, told by all others, is more than it should be.

        Their mean square says so, or how far the interval reaches that holds 95 % of them.
        """
        off = np.abs(self._left_out())
        reach = float(np.quantile(off, _CONFIDENCE)) / NormalDist().inv_cdf((1 + _CONFIDENCE) / 2)
        return max(reach, float(np.sqrt(np.mean(off**2))))

    def without_outliers(self) -> "_Fit":
        """The same with more noise for those that all others predict badly."""
        off = np.maximum(np.abs(self._left_out()) / _OUTLIER, 1.0)
        return _Fit(self.prior, self._covariance, self._values, self._noises * off**2)

    def _left_out(self) -> _Array:
        """How far each is from its prediction by all others, in standard deviations.

        Rasmussen & Williams (2006), equations 5.10 to 5.12.
        """
        return self.weights / np.sqrt(np.sum(self.whitening**2, axis=0))


def _likelihood(fit: _Fit) -> float:
    return fit.log_likelihood


def _equal(left: Sequence[object], right: Sequence[object]) -> _Array:
    return (np.array(left, object)[:, None] == np.array(right, object)[None, :]).astype(float)


def _student_quantile(freedom: int) -> float:
    """How many standard deviations hold 95 % to either side, by Student's t.

    Abramowitz and Stegun, 26.7.5, to the second order: within 4 % from 3 degrees of freedom on.
    """
    z = NormalDist().inv_cdf((1 + _CONFIDENCE) / 2)
    first = (z**3 + z) / (4 * freedom)
    return z + first + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * freedom**2)


def _options(document: Json, path: str = "") -> Iterator[str]:
    """The words and switches of a document and where they stand, and bits; no other numbers."""
    if isinstance(document, dict):
        for name, value in document.items():
            yield from _options(value, f"{path}.{name}")
    elif isinstance(document, list):
        for value in document:
            yield from _options(value, path)
    elif isinstance(document, str | bool) or path == ".bits":
        yield f"{path}={document}"
