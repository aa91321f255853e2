"""What a trial of a search over layers is: a pick for each, what it costs, and what was found.

Importing this runs nothing; the evaluator makes these, and the proposals are made of them.
"""

from search.graphs.picks.costs_of_trials import OBJECTIVES, Costs, Objective
from search.graphs.picks.layer_offers import LayerOffers, Offer
from search.graphs.picks.measured_points import Measured, front_of, out_of_reach
from search.graphs.picks.pick import UNCHANGED, Pick, Picks, changed, offered_picks

__all__ = [
    "OBJECTIVES",
    "UNCHANGED",
    "Costs",
    "LayerOffers",
    "Measured",
    "Objective",
    "Offer",
    "Pick",
    "Picks",
    "changed",
    "front_of",
    "offered_picks",
    "out_of_reach",
]
