"""What tells a document of several tasks or data sets from that of one study."""

from collections.abc import Mapping
from typing import Any, cast

NAMING = ("name", "id")
"""The fields of a task that name its data; a list there names several data sets."""


def lists_of(task: object) -> Mapping[str, list[Any]]:
    """The naming fields of a task that hold a list."""
    if not isinstance(task, Mapping):
        return {}
    fields = cast("Mapping[str, Any]", task)
    return {
        name: list(cast("list[Any]", fields[name]))
        for name in NAMING
        if isinstance(fields.get(name), list | tuple)
    }


def several_tasks_at(document: object) -> tuple[str, ...] | None:
    """Where a document names several tasks; null: it is a single study's, or none at all."""
    if not isinstance(document, Mapping):
        return None
    fields = cast("Mapping[str, Any]", document)
    if "tasks" in fields:
        return ("tasks",)
    if lists := lists_of(fields.get("task")):
        return ("task", next(iter(lists)))
    return ("collection_budget",) if "collection_budget" in fields else None
