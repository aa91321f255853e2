"""What may be picked for a layer, and what is known of it before a file is measured."""

from dataclasses import dataclass

from search.graphs.picks.costs_of_trials import Costs
from search.graphs.picks.pick import Pick


@dataclass(frozen=True)
class Offer:
    """One pick."""

    pick: Pick
    error: float
    """The fit's own, see `models.graphs.fits.Fit.error`."""
    costs: Costs
    """Of this layer alone; bytes with those of the nodes that decode it, which are estimated."""
    numbers: int = 0
    """That are stored."""


@dataclass(frozen=True)
class LayerOffers:
    """All picks of one layer; the first one leaves it as it is."""

    name: str
    offers: tuple[Offer, ...]
    compensated_sensitivity: float
    """Loss of the whole network for each local error, by probes with compensated rounding."""
    plain_sensitivity: float
    """The same, by probes in which each number was rounded by itself."""

    def sensitivity(self, pick: Pick) -> float:
        """By the pick's rounding."""
        return self.compensated_sensitivity if pick.compensated else self.plain_sensitivity
