"""How singular values follow from the trainable numbers p, and what keeps them in an interval.

Equation numbers refer to README.md.
"""

import math
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeVar, cast

import torch
from torch import Tensor

SMALLEST_SHARE = 1e-4


class Spectrum(Protocol):
    """A map from trainable numbers p to singular values s, entry by entry."""

    @property
    def centre(self) -> float:
        """The middle of the interval."""
        ...

    @property
    def radius(self) -> float:
        """Half the length of the interval."""
        ...

    def values(self, p: Tensor) -> Tensor:
        """The singular values that p stands for."""
        ...

    def parameters(self, values: Tensor) -> Tensor:
        """The p of singular values in the interval."""
        ...

    def project_(self, p: Tensor) -> None:
        """Bring p back to where it belongs after an optimizer step, in place."""
        ...

    @property
    def learning_rate_scale(self) -> float:
        """The factor on p's learning rate with which s moves alike for every radius."""
        ...


S = TypeVar("S", bound=Spectrum)


def with_interval(spectrum: S, centre: Tensor, radius: Tensor) -> S:
    """The same with another interval, of scalars in the place of numbers."""
    return replace(cast(Any, spectrum), centre=centre, radius=radius)


@dataclass(frozen=True)
class SigmoidSpectrum:
    """`s = centre + 2 radius (sigmoid(p) - 1/2)`, strictly within the radius (eq. 10)."""

    centre: float
    radius: float

    def values(self, p: Tensor) -> Tensor:
        """The singular values that p stands for."""
        # 2 (sigmoid(p) - 1/2) = tanh(p / 2), without the cancellation near p = 0.
        return self.centre + self.radius * torch.tanh(p / 2)

    def parameters(self, values: Tensor) -> Tensor:
        """The p of singular values, which are kept 1e-4 of the interval away from its ends."""
        most = 1 - 2 * SMALLEST_SHARE
        return 2 * ((values - self.centre) / self.radius).clamp(-most, most).atanh()

    def project_(self, p: Tensor) -> None:
        """Keep s 1e-4 of the interval away from its ends, in place: closer, p would stop to learn.

        Matched learning rates get there in one step where the radius is small.
        """
        most = 2 * math.atanh(1 - 2 * SMALLEST_SHARE)
        p.copy_(p.clamp(-most, most))

    @property
    def learning_rate_scale(self) -> float:
        """`1 / (2 radius)`, as `ds/dp = radius / 2` at the centre and less elsewhere."""
        return 1 / (2 * self.radius)


@dataclass(frozen=True)
class ClippedSpectrum:
    """`s = p`, put back to the nearer end of `centre ± radius` when a step has left it."""

    centre: float
    radius: float

    def values(self, p: Tensor) -> Tensor:
        """P itself."""
        return p

    def parameters(self, values: Tensor) -> Tensor:
        """The values, clipped."""
        return values.clamp(self.centre - self.radius, self.centre + self.radius)

    def project_(self, p: Tensor) -> None:
        """Clip p to the interval, in place."""
        p.copy_(p.clamp(self.centre - self.radius, self.centre + self.radius))

    @property
    def learning_rate_scale(self) -> float:
        """1."""
        return 1.0


@dataclass(frozen=True)
class FreeSpectrum:
    """`s = p`, anywhere; the interval only says where s starts."""

    centre: float
    radius: float

    def values(self, p: Tensor) -> Tensor:
        """P itself."""
        return p

    def parameters(self, values: Tensor) -> Tensor:
        """The values themselves."""
        return values

    def project_(self, p: Tensor) -> None:
        """Every p belongs."""

    @property
    def learning_rate_scale(self) -> float:
        """1."""
        return 1.0
