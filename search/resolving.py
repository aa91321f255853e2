"""From what a user sends to what a study is stored as: the facts that follow from its data."""

from models.spec import Spec
from search.errors import DataError, Fault, SpecRefused
from search.spec import StudySpec
from search.tasks import DataSources

_NAMING = ("id", "name")
"""The fields by which a task names its data, where it does."""


def resolved(spec: StudySpec, sources: DataSources) -> StudySpec:
    """Fill in what follows from the task's data; facts that a user sent are not looked at.

    Whoever is given a stored spec later, a coordinator or a worker, finds the facts in it.

    Raises:
        SpecRefused: a file or an upload is missing or damaged; the message names it, and where it
            belongs.
    """
    try:
        task = spec.task.resolved(sources)
    except DataError as error:
        raise SpecRefused([Fault(_path(spec.task), str(error))]) from error
    return spec.model_copy(update={"task": task})


def _path(task: Spec) -> str:
    naming = [name for name in _NAMING if name in type(task).model_fields]
    return ".".join(["task", *naming[:1]])
