"""Fronts and trials as CSV: one line each, and a column for every hyperparameter that any has."""

import csv
import io
from collections.abc import Generator, Iterable, Iterator, Sequence

from search.studies.spec import OBJECTIVES
from service.api.fronts.schemas import FrontDocument
from storage.engine import Database
from storage.records import TrialRecord, TrialState
from storage.repositories.trials import Trials

CSV = "text/csv; charset=utf-8"

_PAGE = 500
_FRONT = (
    *("trial", "architecture", "parametrization", *OBJECTIVES, "test_quality", "throughput_ratio"),
    *("seeds", "quality_mean", "quality_low", "quality_high", "on_front_by_mean", "continues"),
    *("form", "slower"),
)
_TRIAL = (
    *("number", "outcome", "reason", "origin", "repeats", "continues"),
    *("architecture", "parametrization", *OBJECTIVES, "test_quality", "throughput_ratio"),
    *("dense_parameters", "best_epoch", "epochs_trained"),
    *("created_at", "started_at", "finished_at"),
)


def front_csv(front: FrontDocument) -> str:
    """The points of a front."""
    names = sorted({name for point in front.points for name in point.hyperparameters})
    rows = (
        (
            point.trial,
            point.architecture,
            point.parametrization,
            *(getattr(point.values, objective) for objective in OBJECTIVES),
            point.test_quality,
            point.throughput_ratio,
            point.seeds,
            point.quality_mean,
            *(point.quality_interval or (None, None)),
            point.on_front_by_mean,
            point.continues,
            point.form,
            point.slower,
            *(point.hyperparameters.get(name) for name in names),
        )
        for point in front.points
    )
    return _lines([(*_FRONT, *names), *rows])


def trials_csv(database: Database, study_id: str, *, state: TrialState | None) -> Generator[str]:
    """All trials of a study, or those in one state, in pieces: there may be many thousands.

    Each piece is read by itself, so that a slow client holds nothing open.
    """
    names: set[str] = set()
    for trials in _pages(database, study_id, state):
        names.update(*(trial.hyperparameters for trial in trials))
    columns = sorted(names)
    yield _lines([(*_TRIAL, *columns)])
    for trials in _pages(database, study_id, state):
        yield _lines(_row(trial, columns) for trial in trials)


def _row(trial: TrialRecord, hyperparameters: Sequence[str]) -> tuple[object, ...]:
    times = (trial.created_at, trial.started_at, trial.finished_at)
    return (
        trial.number,
        trial.state.value,
        trial.reason,
        trial.origin.value,
        trial.repeats,
        trial.continues,
        trial.architecture,
        trial.parametrization,
        trial.quality,
        trial.parameters,
        trial.throughput,
        trial.test_quality,
        trial.throughput_ratio,
        trial.dense_parameters,
        trial.best_epoch,
        trial.epochs_trained,
        *(None if at is None else at.isoformat() for at in times),
        *(trial.hyperparameters.get(name) for name in hyperparameters),
    )


def _pages(
    database: Database, study_id: str, state: TrialState | None
) -> Iterator[Sequence[TrialRecord]]:
    cursor: str | None = None
    while True:
        with database.read() as session:
            page = Trials(session).page(study_id, limit=_PAGE, cursor=cursor, state=state)
        yield page.items
        cursor = page.next_cursor
        if cursor is None:
            return


def _lines(rows: Iterable[Sequence[object]]) -> str:
    """Lines of CSV, as RFC 4180 has them."""
    text = io.StringIO()
    csv.writer(text).writerows(rows)
    return text.getvalue()
