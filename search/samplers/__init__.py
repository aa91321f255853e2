"""The samplers that a study may name: one file each, and this union is the registry."""

from typing import Annotated

from pydantic import Field

from search.samplers.grid import Grid
from search.samplers.known_cost import KnownCost
from search.samplers.nsga2 import Nsga2
from search.samplers.random import Random
from search.samplers.sampler import Knowledge, Past, Sampler, Surroundings
from search.samplers.tpe import Tpe

AnySampler = Annotated[Tpe | Random | Nsga2 | Grid | KnownCost, Field(discriminator="kind")]

__all__ = [
    "AnySampler",
    "Grid",
    "Knowledge",
    "KnownCost",
    "Nsga2",
    "Past",
    "Random",
    "Sampler",
    "Surroundings",
    "Tpe",
]
