"""What may be asked of a study."""

from typing import Annotated

from pydantic import BeforeValidator, ConfigDict, Field, ValidationError, model_validator
from pydantic_core import InitErrorDetails

from models.spec import Spec
from search.documents.several_tasks import several_tasks_at
from search.studies.spec import Budget, Priority, StudySpec
from service.api.paths import COLLECTIONS


def _of_one_task(document: object) -> object:
    """The document as it is.

    Raises:
        ValidationError: it names several tasks or data sets.
    """
    place = several_tasks_at(document)
    if place is None:
        return document
    message = f"several tasks make a collection, not a study: POST the same to {COLLECTIONS}"
    fault: InitErrorDetails = {
        "type": "value_error",
        "loc": place,
        "input": document,
        "ctx": {"error": ValueError(message)},
    }
    raise ValidationError.from_exception_data("StudySpec", [fault])


OneStudy = Annotated[StudySpec, BeforeValidator(_of_one_task)]
"""A study's document; that of a collection is refused with where it belongs."""


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
