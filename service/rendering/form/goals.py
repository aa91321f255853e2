"""Goals that a study may begin from: each is a part of a spec, which the form fills in."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from search.documents.objectives import Objective
from search.spaces.model_space import ARCHITECTURE_KINDS, PARAMETRIZATION_KINDS

GOAL = "goal:"
"""What the value of a goal's button begins with, and the name of the field for its number."""

FEW_PARAMETERS = 10_000
"""What "under N parameters" means where no number is given."""


@dataclass(frozen=True, kw_only=True)
class Asked:
    """What a goal's part of a spec depends on."""

    is_network: bool
    """Whether the task is an uploaded network, whose trials train nothing."""
    parameters: int = FEW_PARAMETERS

    @property
    def size(self) -> Objective:
        """What makes a model small: networks of others share their parameters with nothing."""
        return "bytes" if self.is_network else "parameters"


@dataclass(frozen=True, kw_only=True)
class Goal:
    """One goal."""

    title: str
    about: str
    fragment: Callable[[Asked], dict[str, Any]]


def _smallest(asked: Asked) -> dict[str, Any]:
    # Whether a loss is below 1 % is within the noise of one seed.
    seeds = {} if asked.is_network else {"confirm": 2}
    return {"objectives": ["quality", asked.size], **seeds}


def _fastest(asked: Asked) -> dict[str, Any]:  # noqa: ARG001 - the same for all
    return {
        "objectives": ["quality", "throughput"],
        "resources": {"device": "cpu"},
        "throughput": {"batch_size": 1},
    }


def _under(asked: Asked) -> dict[str, Any]:
    return {"objectives": ["quality", asked.size], "limits": {"parameters": asked.parameters}}


def _everything(asked: Asked) -> dict[str, Any]:
    budget = {"trials": 1000, "wall_seconds": 600}
    if asked.is_network:
        return {"budget": budget}
    return {
        "architectures": list(ARCHITECTURE_KINDS),
        "parametrizations": list(PARAMETRIZATION_KINDS),
        "budget": budget,
    }


GOALS: Mapping[str, Goal] = {
    "smallest": Goal(
        title="Smallest within 1 %",
        about="Searches for quality and size. The study's page names the smallest model that loses "
        "at most 1 % against the best.",
        fragment=_smallest,
    ),
    "fastest": Goal(
        title="Fastest on this CPU",
        about="Searches for quality and throughput, measured on a CPU one sample at a time.",
        fragment=_fastest,
    ),
    "under": Goal(
        title="Under N parameters",
        about="Searches for quality and size, and trains no model with more than N parameters.",
        fragment=_under,
    ),
    "everything": Goal(
        title="Try everything, 10 minutes",
        about="Searches all architectures and parametrizations, and ends after 10 minutes.",
        fragment=_everything,
    ),
}
"""Every goal, by the value of its button."""
