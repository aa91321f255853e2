"""Which point of a front to take, in words."""

from typing import Literal

from pydantic import Field

from models.spec import Spec
from search.documents.objectives import Objective

Rule = Literal["smallest_within_noise", "knee", "max_quality_loss"]


class Choice(Spec):
    """One point, and why it is worth a look."""

    rule: Rule
    trial: int
    words: str = Field(description="the point in a sentence")


class Recommendation(Spec):
    """Points of a front that are worth a look: validation data choose them and judge them.

    Those in the region of interest where there are any, each by its mean over seeds.
    """

    trial: int = Field(
        description="that of the first rule that gives one: smallest_within_noise, knee, "
        "max_quality_loss"
    )
    best: int = Field(description="the trial of the best quality")
    cost: Objective = Field(description="what small means: the first cost of the study")
    noise_samples: int | None = Field(
        description="validation samples that the noise of quality follows from; null: not known"
    )
    smallest_within_noise: Choice | None = Field(
        description="the smallest point whose quality differs from the best by no more than "
        "chance explains (5 %, one-sided); null where the noise is not known"
    )
    knee: Choice | None = Field(
        description="the point that is furthest from the line between the ends of the front, over "
        "log10 of the cost and quality, both scaled to 0..1; null for fewer than 4 points"
    )
    max_quality_loss: float = Field(description="the loss that the next field allows")
    within_loss: Choice | None = Field(
        description="the smallest point that loses no more than that against the best"
    )
    words: str = Field(description="all of it, as pages show it")
