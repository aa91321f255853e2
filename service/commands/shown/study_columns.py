"""The columns of a list of studies, over the JSON of studies: nothing heavy is imported."""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, TypeAlias

from service.commands.given.references import SHORT
from service.commands.shown.listing import Column, age, count, moment

_Study: TypeAlias = Mapping[str, Any]


def _field(*names: str) -> Callable[[_Study], Any]:
    """The value at a place of the document; None where it, or its part, is not there."""

    def value(study: _Study) -> Any:
        found: Any = study
        for name in names:
            found = None if found is None else found.get(name)
        return found

    return value


def _created(study: _Study) -> datetime:
    return datetime.fromisoformat(study["created_at"])


def _steps(study: _Study) -> tuple[int, int]:
    """How many steps of the budget are done, and how many there are: trials or epochs."""
    progress = study["progress"]
    trials, left = progress["trials"], progress.get("epochs_left")
    if left is not None:
        return progress["epochs_trained"], progress["epochs_trained"] + left
    ended = ("complete", "stopped", "infeasible", "failed")
    done = sum(trials[state] for state in ended) - trials.get("refused", 0)
    return min(done, trials["total"]), trials["total"]


def _share(study: _Study) -> float:
    done, total = _steps(study)
    return done / total if total else 0.0


def _progress(study: _Study) -> str:
    done, total = _steps(study)
    return f"{done}/{total}"


_front = _field("progress", "front_points")

STUDIES: Sequence[Column[_Study]] = (
    Column("id", _field("id"), lambda study: study["id"][:SHORT], wide=False),
    Column("id", _field("id"), narrow=False),
    Column("name", _field("name"), is_cut=True),
    Column("state", _field("state")),
    Column("progress", _share, _progress, number=True),
    Column("complete", _field("progress", "trials", "complete"), number=True, narrow=False),
    Column("front", _front, lambda study: count(_front(study)), number=True),
    Column("task", _field("spec", "task", "kind"), narrow=False),
    Column("priority", lambda study: study["spec"].get("priority", 0), number=True, narrow=False),
    Column(
        "age",
        lambda study: -_created(study).timestamp(),
        lambda study: age(_created(study)),
        number=True,
        wide=False,
    ),
    Column("created", _created, lambda study: moment(_created(study)), narrow=False),
)
