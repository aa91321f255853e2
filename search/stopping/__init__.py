"""Rules that end trials early: one file each, and this union is the registry.

All of them are pure: what they decide follows from the `Standings` of a study's trials, in which
every objective is a cost in decades.
"""

from typing import Annotated

from pydantic import Field

from search.stopping.curves import Curve, Decision, Standings, best_so_far, log_error, rungs
from search.stopping.mo_asha import MoAsha
from search.stopping.pareto_gain import ParetoGain

AnyStopping = Annotated[ParetoGain | MoAsha, Field(discriminator="kind")]

__all__ = [
    "AnyStopping",
    "Curve",
    "Decision",
    "MoAsha",
    "ParetoGain",
    "Standings",
    "best_so_far",
    "log_error",
    "rungs",
]
