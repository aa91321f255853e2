"""Fronts and trials as CSV: one line each, and a column for every hyperparameter that any has."""

import csv
import io
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from models.spec import kind_of
from search.documents.objectives import OBJECTIVE_KINDS
from search.documents.region import Region
from search.graphs.metrics import Agreement
from search.graphs.network_trial import NETWORK
from service.api.fronts.schemas import FrontDocument
from storage.engine import Database
from storage.records import TrialRecord, TrialState
from storage.repositories.trials import Trials

CSV = "text/csv; charset=utf-8"

_PAGE = 500
_VALUES = tuple(kind.column for kind in OBJECTIVE_KINDS.values())
"""Columns of the objectives."""
_FRONT = (
    *("trial", "architecture", "parametrization", *_VALUES, "test_quality", "throughput_ratio"),
    *("runtime", "latency_p99", "file_form", "bits"),
    *("seeds", "quality_mean", "quality_low", "quality_high", "on_front_by_mean", "continues"),
    *("form", "slower", "outside"),
)
_FRONT_OF_NETWORK = (
    *("trial", "stored_as", *_VALUES, "test_quality", "test_agreement", "throughput_ratio"),
    *("runtime", "latency_p99", "continues", "slower", "outside"),
)
"""Of files of a network of others, which have neither an architecture nor seeds."""
_TRIAL = (
    *("number", "outcome", "reason", "origin", "repeats", "continues"),
    *("architecture", "parametrization", *_VALUES, "test_quality", "throughput_ratio"),
    "latency_p99",
    *("outside", "dense_parameters", "best_epoch", "epochs_trained"),
    *("created_at", "started_at", "finished_at"),
)
_TRIAL_OF_NETWORK = (
    *("number", "outcome", "reason", "origin", "repeats", "continues"),
    *("stored_as", *_VALUES, "test_quality", "test_agreement", "throughput_ratio"),
    *("latency_p99", "outside", "best_epoch", "epochs_trained"),
    *("created_at", "started_at", "finished_at"),
)


def front_csv(front: FrontDocument) -> str:
    """The points of a front.

    Column `bytes` is the objective of that name; each kind of file that a point has is a column of
    its own, `onnx_bytes` for one.
    """
    names = sorted({name for point in front.points for name in point.hyperparameters})
    of_network = any(point.architecture == NETWORK for point in front.points)
    files = sorted({kind for point in front.points for kind in point.bytes})
    columns = (*(_FRONT_OF_NETWORK if of_network else _FRONT), *map(_size_of, files))
    rows: list[Sequence[object]] = [(*columns, *names)]
    for point in front.points:
        low, high = point.quality_interval or (None, None)
        cells = {
            **dict(point),
            **dict(point.values),
            "quality_low": low,
            "quality_high": high,
            "stored_as": point.parametrization,
            **{_size_of(kind): point.bytes.get(kind) for kind in files},
        }
        rows.append(_row(columns, cells, names))
    return _lines(rows)


def _size_of(kind: str) -> str:
    return f"{kind}_bytes"


def trials_csv(
    database: Database,
    study_id: str,
    *,
    state: TrialState | None,
    region: Region,
    numbers: frozenset[int] = frozenset(),
) -> Generator[str]:
    """All trials of a study, or those in one state, in pieces: there may be many thousands.

    Where `numbers` are named, those alone.

    Each piece is read by itself, so that a slow client holds nothing open.
    """
    names: set[str] = set()
    of_network = False
    for trials in _pages(database, study_id, state, numbers):
        names.update(*(trial.hyperparameters for trial in trials))
        of_network = of_network or any(trial.architecture == NETWORK for trial in trials)
    columns = sorted(names)
    own = _TRIAL_OF_NETWORK if of_network else _TRIAL
    yield _lines([(*own, *columns)])
    for trials in _pages(database, study_id, state, numbers):
        rows = (
            {
                **vars(trial),
                "outcome": trial.state,
                "reason": trial.reason,
                "outside": region.is_outside(trial),
                "stored_as": trial.parametrization,
                "test_agreement": trial.test_metrics.get(kind_of(Agreement)),
            }
            for trial in trials
        )
        yield _lines(_row(own, cells, columns) for cells in rows)


def _row(
    names: Sequence[str], cells: Mapping[str, Any], hyperparameters: Sequence[str]
) -> tuple[object, ...]:
    found = (cells[name] for name in names)
    return (
        *(value.isoformat() if isinstance(value, datetime) else value for value in found),
        *(cells["hyperparameters"].get(name) for name in hyperparameters),
    )


def _pages(
    database: Database, study_id: str, state: TrialState | None, numbers: frozenset[int]
) -> Iterator[Sequence[TrialRecord]]:
    cursor: str | None = None
    while True:
        with database.read() as session:
            page = Trials(session).page(study_id, limit=_PAGE, cursor=cursor, state=state)
        yield [trial for trial in page.items if not numbers or trial.number in numbers]
        cursor = page.next_cursor
        if cursor is None:
            return


def _lines(rows: Iterable[Sequence[object]]) -> str:
    """Lines of CSV, as RFC 4180 has them."""
    text = io.StringIO()
    csv.writer(text).writerows(rows)
    return text.getvalue()
