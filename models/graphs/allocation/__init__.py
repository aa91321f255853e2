"""Which choice each layer gets: what losses are to be expected, and what they are worth.

`sensitivities` come from measured `probes`, `predicted_loss` adds them up, `by_price` weighs losses
against costs, and `refitted` learns from what was measured since.
"""

from models.graphs.allocation.candidates import candidates
from models.graphs.allocation.prices import FIRST_PRICES, by_price, prices
from models.graphs.allocation.refitting import nonnegative_least_squares, refitted
from models.graphs.allocation.sensitivity import Probed, predicted_loss, probes, sensitivities

__all__ = [
    "FIRST_PRICES",
    "Probed",
    "by_price",
    "candidates",
    "nonnegative_least_squares",
    "predicted_loss",
    "prices",
    "probes",
    "refitted",
    "sensitivities",
]
