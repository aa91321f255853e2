"""A Gaussian process with a Matern 5/2 kernel, fitted by maximum likelihood over a small grid.

Numbers come in as features on about [0, 1], options as one-hot columns of height 1 / sqrt 2, so
that two different options lie 1 apart.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

LENGTHS = (0.35, 0.7, 1.4, 2.8)
"""Length scales that are tried, in units of one feature's range."""

NOISES = (1e-3, 1e-2, 1e-1, 0.5)
"""Variances of the noise that are tried, as shares of the signal's."""


def matern(left: Array, right: Array, *, length: float) -> Array:
    """Matern 5/2 correlations `[M, N]` of the rows of `left` `[M, D]` and `right` `[N, D]`.

    Rasmussen & Williams (2006), section 4.2.1, equation 4.17:
    `(1 + sqrt5 r + 5 r^2 / 3) exp(-sqrt5 r)`, with r the distance in lengths.
    """
    squares = np.sum(left**2, axis=1)[:, None] + np.sum(right**2, axis=1)[None, :]
    return matern_of(np.maximum(squares - 2 * left @ right.T, 0.0) / length**2)


def matern_of(squares: Array) -> Array:
    """Matern 5/2 correlations at squared distances in lengths, see `matern`."""
    scaled = np.sqrt(5 * squares)
    return (1 + scaled + scaled**2 / 3) * np.exp(-scaled)


@dataclass(frozen=True, kw_only=True)
class GaussianProcess:
    """A fitted process: what it has seen, and how much it leans on each of it."""

    features: Array
    """`[N, D]`."""
    mean: float
    """Far from all that was seen, the prediction."""
    variance: float
    """Of the signal."""
    length: float
    noise: float
    """Variance of the noise of a value with weight 1, as a share of the signal's."""
    log_likelihood: float
    whitening: Array
    """`[N, N]`, a square root V of the inverse correlations with noise: `V^T V`."""
    weights: Array
    """`[N]`: the inverse correlations times the centred values."""

    def means(self, features: Array) -> Array:
        """Mean `[M]` of the value at each row `[M, D]`."""
        return self.mean + matern(features, self.features, length=self.length) @ self.weights

    def predict(self, features: Array) -> tuple[Array, Array]:
        """Mean and standard deviation `[M]` of the noiseless value at each row `[M, D]`."""
        across = matern(features, self.features, length=self.length)
        mean = self.mean + across @ self.weights
        share = np.maximum(1.0 - np.sum((across @ self.whitening.T) ** 2, axis=1), 1e-12)
        return mean, np.sqrt(self.variance * share)


def fit(features: Array, values: Array, noise_weights: Array) -> GaussianProcess:
    """The most likely process over the grid of lengths and noises.

    Mean and variance follow in closed form (R&W section 2.7 for the mean; the variance is profiled
    out of equation 2.30). Of each length, one eigendecomposition serves all noises.

    Args:
        features: `[N, D]`, N at least 1.
        values: `[N]`.
        noise_weights: `[N]`, by how much more variance than the others' a value's noise has.
    """
    fitted = (
        process
        for length in LENGTHS
        for process in _fit_at(features, values, noise_weights, length=length)
    )
    return max(fitted, key=lambda process: process.log_likelihood)


def _fit_at(
    features: Array, values: Array, noise_weights: Array, *, length: float
) -> Iterator[GaussianProcess]:
    """One process per noise.

    With weights w on the diagonal of D, `K + noise D` has the inverse `V^T V`, where
    `V = (e + noise)^(-1/2) Q^T D^(-1/2)` and `Q e Q^T = D^(-1/2) K D^(-1/2)`.
    """
    total = len(values)
    scale = 1 / np.sqrt(noise_weights)
    correlations = matern(features, features, length=length)
    spectrum, basis = np.linalg.eigh(scale[:, None] * correlations * scale)
    turned = np.asarray(basis.T * scale, float)
    for noise in NOISES:
        spread = np.maximum(spectrum, 0.0) + noise
        whitening = turned / np.sqrt(spread)[:, None]
        white_ones, white_values = whitening.sum(axis=1), whitening @ values
        mean = float(white_ones @ white_values / (white_ones @ white_ones))
        white = white_values - mean * white_ones
        # Equal values have no spread to learn a scale from: the floor keeps the logarithm finite.
        variance = max(float(white @ white) / total, 1e-8)
        log_determinant = float(np.log(spread).sum() + np.log(noise_weights).sum())
        log_likelihood = -0.5 * (total * (math.log(2 * math.pi * variance) + 1) + log_determinant)
        yield GaussianProcess(
            features=features,
            mean=mean,
            variance=variance,
            length=length,
            noise=noise,
            log_likelihood=log_likelihood,
            whitening=whitening,
            weights=whitening.T @ white,
        )
