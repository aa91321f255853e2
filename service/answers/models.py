"""Trained models that users uploaded."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from pydantic import Field

from service.answers.base import Answer


class ModelSignature(Answer):
    """The shapes at both ends of a model, as far as its file tells them."""

    input_size: int
    sequence_length: int | None = None
    output_size: int
    output_steps: str
    vocabulary: int | None = None


class UploadedModel(Answer):
    """A user's model, and what was found in its file."""

    id: str
    name: str
    source: str
    sha256: str
    size_bytes: int
    file_sha256: str
    file_size_bytes: int
    options: dict[str, Any] = Field(default_factory=dict[str, Any])
    notes: list[str] = Field(default_factory=list[str])
    architecture: dict[str, Any]
    signature: ModelSignature
    parameters: int
    created_at: datetime | None = None
    links: Mapping[str, str | None]


class TaskFit(Answer):
    """A task whose shapes a model has."""

    task: str
    layout: str | None = None


class UploadedModelDetail(UploadedModel):
    """A user's model with all its modules and tensors, and what it could be tried on."""

    totals: dict[str, int]
    rows: list[dict[str, Any]]
    fits: list[TaskFit]
