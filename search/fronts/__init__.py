"""Fronts: which trials no other dominates, their hypervolume, and what follows for files."""

from search.fronts.best_of_kind import BestOfKind, kind_name
from search.fronts.dominance import front_of, value_of
from search.fronts.figures import Figures, Standing
from search.fronts.hypervolumes import FRONT
from search.fronts.pareto import ObjectiveInfo, objective_infos, reference_point
from search.fronts.study_progress import progress
from search.fronts.unmeasured import best_ends, may_be_on_front, may_join, middles

__all__ = [
    "FRONT",
    "BestOfKind",
    "Figures",
    "ObjectiveInfo",
    "Standing",
    "best_ends",
    "front_of",
    "kind_name",
    "may_be_on_front",
    "may_join",
    "middles",
    "objective_infos",
    "progress",
    "reference_point",
    "value_of",
]
