"""Data sets that users uploaded."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from pydantic import Field

from service.answers.base import Answer


class DatasetFacts(Answer):
    """What a data set holds."""

    problem: str
    samples: dict[str, int]
    steps: int
    shortest: int
    features: int
    outputs: int
    classes: list[str] | None = None
    class_counts: list[int] | None = None
    missing_values: int = 0


class Dataset(Answer):
    """A user's upload, and what was found in it."""

    id: str
    name: str
    sha256: str
    test_sha256: str | None = None
    size_bytes: int
    format: str
    options: dict[str, Any] = Field(default_factory=dict[str, Any])
    facts: DatasetFacts
    preview: list[dict[str, Any]] = Field(default_factory=list[dict[str, Any]])
    created_at: datetime | None = None
    links: Mapping[str, str | None]
