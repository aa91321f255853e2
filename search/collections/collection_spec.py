"""The document of a collection: that of a study, but for several tasks or data sets at once."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pydantic import (
    ConfigDict,
    Field,
    GetJsonSchemaHandler,
    PrivateAttr,
    ValidationError,
    model_validator,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, ErrorDetails, InitErrorDetails

from models.spec import Spec
from search.documents.several_tasks import lists_of
from search.studies import StudySpec

MOST_STUDIES = 200
"""How many studies one document may make."""

_LONGEST_NAME = 200

_Location = tuple[int | str, ...]


class CollectionBudget(Spec):
    """What the studies of a collection may take together; each has its own budget besides."""

    trials: int | None = Field(
        default=None,
        ge=1,
        le=10_000_000,
        description="trials that end after they were dispatched; of studies with `freeze_thaw`, "
        "whole trainings. What runs when they are used up is stopped",
    )
    total_epochs: int | None = Field(default=None, ge=1, le=10**12, description="epochs trained")
    device_hours: float | None = Field(
        default=None, gt=0, description="sum over attempts of slot share times hours"
    )


@dataclass(frozen=True)
class TaskPlace:
    """Where the task of one study stands in a collection's document."""

    at: _Location
    """The place of the task."""
    naming: str | None
    """The field of that task that holds a list; null: none does."""
    index: int
    """Its place in that list."""

    @property
    def whole(self) -> _Location:
        """The place of what this study alone has of the document."""
        return self.at if self.naming is None else (*self.at, self.naming, self.index)

    def of(self, location: _Location) -> _Location:
        """Where something of the study's document stands in the collection's.

        Kinds in between, which pydantic names and documents have not, stay.
        """
        if location[:1] != ("task",):
            return location
        place = (*self.at, *location[1:])
        is_listed = self.naming is not None and place[-1] == self.naming
        return (*place, self.index) if is_listed else place


@dataclass(frozen=True)
class CollectedStudy:
    """A study of a collection."""

    row: str
    """What tells it from the others: the name of its data, or the kind of its task."""
    place: TaskPlace
    spec: StudySpec


class CollectionSpec(Spec):
    """A study for each of several tasks or data sets: `task.name` or `task.id` is a list.

    Or `tasks` names them one by one. All other keys are those of a study, and hold for each.
    """

    model_config = ConfigDict(
        extra="allow",
        json_schema_extra={
            "examples": [
                {
                    "name": "cells on two sets",
                    "task": {"kind": "ucr", "name": ["GunPoint", "Coffee"]},
                    "architectures": ["rnn", "gru"],
                    "parametrizations": ["dense", "householder_svd"],
                    "sampler": {"kind": "random"},
                    "budget": {"trials": 20, "epochs": 20},
                    "collection_budget": {"device_hours": 2.0},
                },
                {"tasks": [{"kind": "digits"}, {"kind": "addition", "steps": 20}]},
            ]
        },
    )

    name: str = Field(
        default="collection",
        min_length=1,
        max_length=_LONGEST_NAME,
        description="for people; each study has it too, with its data set's name",
    )
    task: dict[str, Any] | None = Field(
        default=None,
        description="a task whose `name` (of `id`, for uploads) is a list: a study for each",
    )
    tasks: tuple[dict[str, Any], ...] | None = Field(
        default=None, description="several tasks; any of them may name several data sets as well"
    )
    collection_budget: CollectionBudget | None = Field(
        default=None, description="what all studies may take together; null: no limit"
    )
    _studies: tuple[CollectedStudy, ...] = PrivateAttr(default=())

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        """Its own keys, and those of a study."""
        own = handler.resolve_ref_schema(handler(core_schema))
        study = handler.resolve_ref_schema(handler(StudySpec.__pydantic_core_schema__))
        own["properties"] = {**study["properties"], **own["properties"]}
        own["additionalProperties"] = False
        return own

    @property
    def studies(self) -> Sequence[CollectedStudy]:
        """The studies, in the order of the document."""
        return self._studies

    def titled(self, study: CollectedStudy, row: str) -> CollectedStudy:
        """A study of the collection by another name of its data."""
        named = study.spec.model_copy(update={"name": _joined(self.name, row)})
        return replace(study, row=row, spec=named)

    @model_validator(mode="after")
    def _of_studies(self) -> "CollectionSpec":
        if not self.name.isprintable():
            raise ValueError(f"the name {self.name!r} holds characters that cannot be printed")
        sets = [*self._sets()]
        if len(sets) > MOST_STUDIES:
            raise ValueError(
                f"{len(sets)} tasks and data sets are more than the {MOST_STUDIES} that a "
                "collection may have"
            )
        shared = {**(self.model_extra or {})}
        rows = _rows([one.document for one in sets])
        found: list[CollectedStudy] = []
        faults: list[tuple[TaskPlace, Sequence[ErrorDetails]]] = []
        for row, one in zip(rows, sets, strict=True):
            document = {**shared, "name": _joined(self.name, row), "task": one.document}
            try:
                spec = StudySpec.model_validate(document)
            except ValidationError as error:
                faults.append((one.place, error.errors(include_url=False)))
                continue
            found.append(CollectedStudy(row, one.place, spec))
        _refuse(type(self).__name__, [*_repeats(sets), *_located(faults)])
        self._studies = tuple(found)
        return self

    def _sets(self) -> Iterator["_Set"]:
        """The tasks, one for each study.

        Raises:
            ValueError: there are none, or two ways to name them.
        """
        if (self.task is None) == (self.tasks is None):
            raise ValueError(
                "a collection names its data sets by a list in task.name or task.id, or its tasks "
                f"by the list tasks; this one has {'neither' if self.task is None else 'both'}"
            )
        if self.task is not None:
            lists = lists_of(self.task)
            if not lists:
                raise ValueError(
                    "task names no list of data sets; allowed are a list in task.name or task.id, "
                    "a list tasks, or the same document as a study"
                )
            yield from _of_task(self.task, ("task",))
        for index, task in enumerate(self.tasks or ()):
            yield from _of_task(task, ("tasks", index))
        if self.tasks == ():
            raise ValueError("tasks is empty; allowed are 1 or more")


@dataclass(frozen=True)
class _Set:
    """The task of one study."""

    document: dict[str, Any]
    place: TaskPlace


def _of_task(task: Mapping[str, Any], at: _Location) -> Iterator[_Set]:
    lists = lists_of(task)
    if not lists:
        yield _Set(dict(task), TaskPlace(at, None, 0))
        return
    naming, names = next(iter(lists.items()))
    if not names:
        raise ValueError(f"{'.'.join(map(str, (*at, naming)))} is empty; allowed are 1 or more")
    for index, name in enumerate(names):
        yield _Set({**task, naming: name}, TaskPlace(at, naming, index))


def _rows(tasks: Sequence[Mapping[str, Any]]) -> list[str]:
    """A word for each task, all of them different."""
    found: list[str] = []
    for task in tasks:
        named = task.get("name", task.get("id", task.get("kind")))
        word, number = str(named), 1
        while word in found:
            number += 1
            word = f"{named} {number}"
        found.append(word)
    return found


def _joined(name: str, row: str) -> str:
    """The name of a study, which is no longer than names may be."""
    behind = f": {row}"[:_LONGEST_NAME]
    return f"{name[: _LONGEST_NAME - len(behind)]}{behind}"


def _repeats(sets: Sequence[_Set]) -> Iterator[InitErrorDetails]:
    known: list[dict[str, Any]] = []
    for one in sets:
        if one.document in known:
            naming = one.place.naming
            what = "this task" if naming is None else repr(one.document[naming])
            yield {
                "type": "value_error",
                "loc": one.place.whole,
                "input": one.document,
                "ctx": {"error": ValueError(f"{what} stands twice; allowed is each once")},
            }
        known.append(one.document)


def _located(
    faults: Sequence[tuple[TaskPlace, Sequence[ErrorDetails]]],
) -> Iterator[InitErrorDetails]:
    """The faults of the studies where they stand in the document; what is shared stands once."""
    known: set[tuple[_Location, str]] = set()
    for place, errors in faults:
        for error in errors:
            location = place.of(error["loc"])
            if (location, error["msg"]) not in known:
                known.add((location, error["msg"]))
                yield {
                    "type": error["type"],
                    "loc": location,
                    "input": error["input"],
                    "ctx": error.get("ctx", {}),
                }


def _refuse(title: str, faults: Sequence[InitErrorDetails]) -> None:
    if faults:
        raise ValidationError.from_exception_data(title, [*faults])
