"""How much a loss in one layer costs the whole network."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from models.graphs.fits import AnyChoice, Dense, LowRank
from models.graphs.layers import Layer

PROBE_BITS = 4
PROBE_RANK = 0.45
"""As a share of the rank at which factors break even."""
_SMALLEST_LOSS, _SMALLEST_ERROR = 1e-9, 1e-12


@dataclass(frozen=True)
class Probed:
    """What one layer's probe did while all others stayed as they are."""

    loss: float
    """Of the network's answers, such as their divergence from the original's."""
    error: float
    """The fit's own, see `Fit.error`."""


def probes(layer: Layer) -> tuple[AnyChoice, ...]:
    """The choices to measure a layer by: 4 bits, and a low rank where it may have one."""
    if layer.quantized:
        return ()
    if not layer.structured:
        return (Dense(bits=PROBE_BITS),)
    rank = max(1, round(PROBE_RANK * layer.break_even))
    return (Dense(bits=PROBE_BITS), LowRank(rank=rank))


def sensitivities(measured: Mapping[str, Sequence[Probed]]) -> dict[str, float]:
    """Loss for each local error, by layer: the geometric mean over its probes.

    Losses below 1e-9 count as that, and errors below 1e-12. A layer without probes has 0.
    """
    return {name: _sensitivity(found) if found else 0.0 for name, found in measured.items()}


def predicted_loss(sensitivity: Mapping[str, float], errors: Mapping[str, float]) -> float:
    """`sum s e` over the layers of which errors are given."""
    return sum(sensitivity[name] * error for name, error in errors.items())


def _sensitivity(found: Sequence[Probed]) -> float:
    logarithms = [
        math.log(max(one.loss, _SMALLEST_LOSS) / max(one.error, _SMALLEST_ERROR)) for one in found
    ]
    return math.exp(math.fsum(logarithms) / len(logarithms))
