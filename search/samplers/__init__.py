"""The samplers that a study may name: one file each, and this union is the registry."""

from typing import Annotated

from pydantic import Field

from search.samplers.adapters.distributions import distribution_of
from search.samplers.adapters.frozen import CONSTRAINTS, STATES
from search.samplers.branches import Branches
from search.samplers.by_layer import ByLayer
from search.samplers.freeze_thaw import FreezeThaw
from search.samplers.gp import Gp
from search.samplers.grid import Grid
from search.samplers.known_cost import KnownCost
from search.samplers.modelling.candidates import stands
from search.samplers.nsga2 import Nsga2
from search.samplers.nsga3 import Nsga3
from search.samplers.pausing.rank_prior import ranks_of
from search.samplers.random import Random
from search.samplers.sampler import (
    NO_LIMIT,
    Choice,
    Knowledge,
    Past,
    Question,
    RankedTrials,
    Ranking,
    Sampler,
    SamplerContext,
)
from search.samplers.tpe import Tpe

AnySampler = Annotated[
    Tpe | Random | Nsga2 | Nsga3 | Grid | KnownCost | FreezeThaw | Gp | Branches | ByLayer,
    Field(discriminator="kind"),
]

__all__ = [
    "CONSTRAINTS",
    "NO_LIMIT",
    "STATES",
    "AnySampler",
    "Branches",
    "ByLayer",
    "Choice",
    "FreezeThaw",
    "Gp",
    "Grid",
    "Knowledge",
    "KnownCost",
    "Nsga2",
    "Nsga3",
    "Past",
    "Question",
    "Random",
    "RankedTrials",
    "Ranking",
    "Sampler",
    "SamplerContext",
    "Tpe",
    "distribution_of",
    "ranks_of",
    "stands",
]
