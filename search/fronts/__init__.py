"""Fronts: which trials no other dominates, their hypervolume, and what follows for files."""

from search.fronts.figures import Figures, Standing
from search.fronts.hypervolumes import FRONT
from search.fronts.pareto import ObjectiveInfo, front_of, objective_infos, reference_point, value_of
from search.fronts.study_progress import progress

__all__ = [
    "FRONT",
    "Figures",
    "ObjectiveInfo",
    "Standing",
    "front_of",
    "objective_infos",
    "progress",
    "reference_point",
    "value_of",
]
