"""Users' trained models: what they could be tried on."""

from pydantic import Field

from models.spec import Spec


class TaskFit(Spec):
    """A task whose shapes a model has."""

    task: str
    layout: str | None = Field(description="how its samples are laid out; null: it has one way")
