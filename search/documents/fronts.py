"""The objectives of a study, and the figures that follow from its trials."""

from datetime import datetime
from typing import Literal

from pydantic import Field

from models.spec import Spec
from search.documents.objectives import Direction, Objective


class ObjectiveInfo(Spec):
    """An objective as the user knows it: quality goes by the task's own metric."""

    name: Objective
    metric: str
    direction: Direction
    unit: str


class DimensionImportance(Spec):
    """One dimension, and what it did to one objective."""

    dimension: str
    importance: float = Field(
        description="share of what tells the best trials from the others; the shares of an "
        "objective are 1 together"
    )
    trials: int = Field(description="how many of the trials have it; others have no such dimension")
    trend: float | None = Field(
        description="Spearman's rank correlation of its values with the objective's, from -1 to 1; "
        "null for a choice, and where either does not vary"
    )
    medians: dict[str, float] | None = Field(
        description="of a choice: the objective's median for each option that was tried; else null"
    )


class ObjectiveImportance(Spec):
    """One objective, and the dimensions that had the most to do with it first."""

    objective: ObjectiveInfo
    trials: int = Field(
        description="trials that it is judged by: complete ones for quality, and for the other two "
        "all that have a value, which they have before they train"
    )
    best_share: float | None = Field(
        description="the share of the trials that counts as the best ones"
    )
    reason: str | None = Field(description="why there are no dimensions; null where there are")
    dimensions: tuple[DimensionImportance, ...]


class Importance(Spec):
    """What each dimension of a study's space did to each objective."""

    method: Literal["ped_anova"] = "ped_anova"
    objectives: tuple[ObjectiveImportance, ...]


class HypervolumePoint(Spec):
    """The front from the moment on that a trial changed it."""

    trial: int | None = Field(
        description="the trial that came onto the front, the last of several; where points have "
        "only left, as they broke a limit when they were measured, the newest that stays"
    )
    epochs_trained: int | None = Field(description="by all trials of the study, until then")
    wall_seconds: float | None = Field(description="in state running, until then")
    at: datetime
    hypervolume: float
    points: int = Field(description="how many trials are on the front")
