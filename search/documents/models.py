"""Users' trained models: what they could be tried on."""

from typing import Final

from pydantic import Field

from models.spec import Spec

ONNX_SOURCE: Final = "onnx"
"""What the source of an uploaded model is called whose file is kept as it came."""


class TaskFit(Spec):
    """A task whose shapes a model has."""

    task: str
    layout: str | None = Field(description="how its samples are laid out; null: it has one way")
