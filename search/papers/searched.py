"""Rows of our own: what a search finds within the parameters that a paper's systems have."""

import itertools
import json
from collections.abc import Collection, Iterator, Sequence
from typing import Any, Final

from search.documents.papers import Fails, PrintedValue, Reaches, RowEntry
from search.papers.row import Row, task_document

SEARCHED: Final = "searched"
"""The name of the system, and the last part of the rows' keys."""

_TRIALS: Final = 30
_DEVICE_HOURS: Final = 4
"""After which a search begins no more trials: two hours of two cores."""

_DEVICE_SECONDS: Final = 3600.0 * _DEVICE_HOURS

BUDGET_IN_WORDS: Final = (
    f"{_TRIALS} trials, or of as many as begin within {_DEVICE_HOURS} device hours"
)
"""What a search may use, for sentences: the best "of" so many."""

_NOTE = (
    "Not of a paper: the best, by validation, of {budget}, in a study that looks for quality "
    "alone among the default architectures and parametrizations, with at most as many parameters "
    "as the largest system here ({limit:,}), and no more updates for each trial. Beside it stands "
    "the best value printed for this task, or else what a system is said to reach."
)


def searched_entries(table: str, rows: Sequence[Row]) -> Iterator[RowEntry]:
    """A row for each task of a table.

    Args:
        table: its name, which studies' names begin with.
        rows: all that it has.
    """
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(json.dumps(task_document(row.task, seed=0), sort_keys=True), []).append(
            row
        )
    keys: set[str] = set()
    for group in groups.values():
        values = [row for row in group if isinstance(row.claim, PrintedValue)]
        largest = max(values or group, key=lambda row: row.parameters)
        key = _key(largest, keys)
        keys.add(key)
        yield _entry(table, key, largest, _rival(group) or largest)


def _rival(rows: Sequence[Row]) -> Row | None:
    """The best that is printed for a task, or else said to be reached; None: neither is."""
    for kind in (PrintedValue, Reaches):
        claimed = [row for row in rows if isinstance(row.claim, kind)]
        judged = [row for row in claimed if row.unreachable is None] or claimed
        if judged:
            return max(judged, key=_goodness)
    return None


def _key(row: Row, taken: Collection[str]) -> str:
    """In the group of the largest row; where rows have none, numbers tell the tasks apart."""
    if "/" in row.key:
        return f"{row.group}/{SEARCHED}"
    numbers = itertools.count(2)
    key = SEARCHED
    while key in taken:
        key = f"{SEARCHED}-{next(numbers)}"
    return key


def _entry(table: str, key: str, largest: Row, rival: Row) -> RowEntry:
    """The row of a task: how large and how long, and what stands beside it."""
    claim = None if isinstance(rival.claim, Fails) else rival.claim
    return RowEntry(
        key=key,
        system=SEARCHED,
        title="Searched",
        description=_NOTE.format(budget=BUDGET_IN_WORDS, limit=largest.parameters),
        source=rival.source,
        claim=claim,
        direction=largest.quality_direction,
        test_samples=rival.test_samples,
        printed_parameters=None,
        parameters=largest.parameters,
        updates=largest.recipe.updates,
        predicted_seconds=_predicted_seconds(largest),
        erratum=None,
        deviation=None,
        unreachable=rival.unreachable,
        spec=_document(f"{table}: {key}, seed 0", largest),
    )


def _predicted_seconds(largest: Row) -> float:
    """At most: what begins within the hours comes to its end."""
    one = largest.predicted_seconds
    return min(_TRIALS * one, _DEVICE_SECONDS + one)


def _goodness(row: Row) -> float:
    assert row.claim is not None, row.key
    return row.claim.value if row.claim.direction == "maximize" else -row.claim.value


def _document(name: str, largest: Row) -> dict[str, Any]:
    """A study with defaults, but for how much a trial is trained, and for what is looked for.

    Quality alone: the question is what a number of parameters can do. A study of a front spends
    most of its trials on smaller networks.
    """
    training = largest.training
    budget: dict[str, float] = {"trials": _TRIALS, "epochs": largest.recipe.epochs}
    if _TRIALS * largest.predicted_seconds > _DEVICE_SECONDS:
        budget["device_hours"] = _DEVICE_HOURS
    return {
        "name": name,
        "task": task_document(largest.task, seed=0),
        "space": {
            "training.batch_size": training.batch_size,
            "training.epoch_updates": training.epoch_updates,
        },
        "objectives": ["quality"],
        "limits": {"parameters": largest.parameters},
        "budget": budget,
        "seed": 0,
    }
