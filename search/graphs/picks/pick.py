"""One layer's choice, with how it is rounded."""

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from pydantic import Field

from models.graphs.allocation import candidates, multiply_adds_of
from models.graphs.fits import CHOICES, AnyChoice, Dense
from models.graphs.layers import Layer
from models.spec import Spec
from search.graphs.picks.costs_of_trials import Objective

_ALWAYS_PLAIN = 8
"""From so many bits on, nothing is compensated."""


class Pick(Spec):
    """How one layer is stored, and by which rounding."""

    choice: AnyChoice
    compensated: bool = Field(
        default=True,
        description="whether columns make up for what others lost by rounding below 8 bits; else "
        "each number is rounded by itself. Neither is always better",
    )


Picks: TypeAlias = Mapping[str, Pick]
"""By the layers' names; layers that are left out stay as they are."""

UNCHANGED = Pick(choice=Dense())


def changed(picks: Picks) -> frozenset[tuple[str, Pick]]:
    """What tells two trials apart."""
    return frozenset((name, pick) for name, pick in picks.items() if not pick.choice.unchanged)


def offered_picks(
    layer: Layer,
    objectives: Sequence[Objective],
    kinds: Sequence[type[AnyChoice]] = CHOICES,
) -> list[Pick]:
    """The layer as it is, and all that is smaller, or takes fewer multiply-adds if those count.

    Below 8 bits each choice is there with both roundings. Factors run one by one only where
    multiply-adds count: bytes are the same.
    """
    found: dict[AnyChoice, None] = {}
    if "bytes" in objectives:
        found.update(dict.fromkeys(candidates(layer, kinds)))
    if "multiply_adds" in objectives:
        found.update(dict.fromkeys(candidates(layer, kinds, cost=multiply_adds_of)))
    wanted = [
        choice for choice in found if "multiply_adds" in objectives or not choice.runs_factors
    ]
    return [
        Pick(choice=choice, compensated=compensated)
        for choice in wanted
        for compensated in ((True, False) if choice.bits < _ALWAYS_PLAIN else (True,))
    ]
