"""How long an epoch of each task took last, for estimates before anything has run."""

from collections.abc import Mapping
from statistics import median

from sqlalchemy.orm import Session

from service.rendering.form.estimate import Pace
from storage.repositories.metrics import Metrics
from storage.repositories.studies import Studies

_STUDIES = 30
_TRIALS = 20
"""How many of the newest studies, and of the first trials of each, are looked at."""


def paces(session: Session) -> Mapping[str, Pace]:
    """The pace of the newest study of each task that has trained an epoch, by the task's kind."""
    found: dict[str, Pace] = {}
    for study in Studies(session).page(limit=_STUDIES).items:
        task = study.spec.get("task")
        kind = str(task.get("kind", "")) if isinstance(task, dict) else ""
        if kind in found or study.started_at is None:
            continue
        seconds = [
            one
            for trial in Metrics(session).epoch_seconds(study.id, range(_TRIALS)).values()
            for one in trial
        ]
        if seconds:
            found[kind] = Pace(seconds=median(seconds), study=study.name)
    return found
