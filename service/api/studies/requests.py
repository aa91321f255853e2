"""What may be asked of a study."""

from dataclasses import fields
from typing import Annotated

from pydantic import (
    AfterValidator,
    BeforeValidator,
    ConfigDict,
    Field,
    StringConstraints,
    ValidationError,
    model_validator,
)
from pydantic_core import InitErrorDetails

from models.spec import Spec
from search.documents.several_tasks import several_tasks_at
from search.studies.spec import Budget, Priority, StudySpec
from service.api.paths import COLLECTIONS
from storage.records import StudyLabels

StudyName = Annotated[str, StringConstraints(min_length=1, max_length=200)]
Tag = Annotated[
    str,
    StringConstraints(
        strip_whitespace=True, min_length=1, max_length=50, pattern=r"^[^,\x00-\x1f]+$"
    ),
]
"""A word or a few to find a study by; commas stand between tags where people write them."""


def _once_each(tags: tuple[str, ...]) -> tuple[str, ...]:
    if len(set(tags)) < len(tags):
        repeated = sorted({tag for tag in tags if tags.count(tag) > 1})
        raise ValueError(f"{', '.join(map(repr, repeated))} is there twice; allowed is once each")
    return tags


Tags = Annotated[tuple[Tag, ...], AfterValidator(_once_each)]


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
        json_schema_extra={
            "examples": [
                {"budget": {"trials": 60}},
                {"priority": 5},
                {"name": "rows of digits", "tags": ["digits"], "notes": "before the new data"},
            ]
        }
    )

    budget: Budget | None = Field(
        default=None, description="what is named changes, null takes a limit away"
    )
    priority: Priority | None = None
    name: StudyName | None = None
    tags: Tags | None = Field(
        default=None, max_length=20, description="all of them from now on; each at most once"
    )
    notes: str | None = Field(
        default=None, max_length=10_000, description="plain text; an empty one takes notes away"
    )

    @property
    def labels(self) -> StudyLabels | None:
        """What changes of the study's labels; null where nothing does."""
        given = {one.name: getattr(self, one.name) for one in fields(StudyLabels)}
        if all(value is None for value in given.values()):
            return None
        return StudyLabels(**given)

    @model_validator(mode="after")
    def _changes_something(self) -> "StudyChange":
        if all(value is None for _, value in self):
            known = ", ".join(type(self).model_fields)
            raise ValueError(f"a change names at least one of {known}, and this one none")
        return self
