"""What may be asked of a study."""

from pydantic import ConfigDict, Field, model_validator

from models.spec import Spec
from search.studies.spec import Budget, Priority


class StudyChange(Spec):
    """What may change in a study that was submitted."""

    model_config = ConfigDict(
        json_schema_extra={"examples": [{"budget": {"trials": 60}}, {"priority": 5}]}
    )

    budget: Budget | None = Field(
        default=None, description="what is named changes, null takes a limit away"
    )
    priority: Priority | None = None

    @model_validator(mode="after")
    def _changes_something(self) -> "StudyChange":
        if self.budget is None and self.priority is None:
            raise ValueError("a change names budget, priority or both, and this one neither")
        return self
