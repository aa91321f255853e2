"""Which tasks a model could be tried on, as it is."""

from functools import cache
from typing import get_args

from models.model import ModelSpec
from models.spec import Signature, kind_of
from search.documents.models import TaskFit
from search.tasks import TASKS, AnyTask

_LAYOUT = "layout"
_FACTS = "facts"


def misfit(spec: ModelSpec, signature: Signature) -> str | None:
    """Why a model cannot be given a task's samples, or answer for them; None where it can.

    A model that reads sequences as a whole takes any layout of as many numbers; others run at any
    length.
    """
    own = spec.signature
    pairs: list[tuple[str, object, object]] = [
        ("outputs", own.output_size, signature.output_size),
        ("output steps", own.output_steps, signature.output_steps),
        ("vocabulary", own.vocabulary, signature.vocabulary),
    ]
    if spec.architecture.any_length:
        pairs.insert(0, ("features per step", own.input_size, signature.input_size))
    else:
        pairs.insert(0, ("numbers per sample", _numbers(own), _numbers(signature)))
    for what, has, asked in pairs:
        if has != asked:
            return f"the model has {what} {has!r}, and the task has {asked!r}"
    return None


def fitting_tasks(spec: ModelSpec) -> tuple[TaskFit, ...]:
    """The tasks that fit as they are by default, in each layout; those of files are not looked at.

    What a task's files or other options make of it, a study's submission tells.
    """
    return tuple(fit for fit, signature in _signatures() if misfit(spec, signature) is None)


def _numbers(signature: Signature) -> int:
    return signature.sequence_length * signature.input_size


@cache
def _signatures() -> tuple[tuple[TaskFit, Signature], ...]:
    found: list[tuple[TaskFit, Signature]] = []
    for variant in TASKS:
        if _FACTS in variant.model_fields:
            continue
        kind, example = kind_of(variant), variant.example()
        for layout in _layouts(variant):
            changes = {} if layout is None else {_LAYOUT: layout}
            task = example.model_copy(update=changes)
            found.append((TaskFit(task=kind, layout=layout), task.signature()))
    return tuple(found)


def _layouts(variant: type[AnyTask]) -> tuple[str | None, ...]:
    field = variant.model_fields.get(_LAYOUT)
    return (None,) if field is None else get_args(field.annotation)
