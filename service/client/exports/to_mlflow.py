"""Runs in MLflow: found by their tags, and brought up to date."""

import time
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from service.client.errors import ExportFailed, ExtraMissing
from service.client.exports.runs import STUDY_TAG, TRIAL_TAG, Run
from storage.records import TrialState

_MOST_AT_ONCE = 500
"""Metrics that a tracking server takes in one request are limited to 1,000."""

_STATUS = {
    TrialState.RUNNING: "RUNNING",
    TrialState.PAUSED: "SCHEDULED",
    TrialState.FAILED: "FAILED",
    TrialState.CANCELLED: "KILLED",
}
"""Other outcomes are ends in order."""


def write(runs: Sequence[Run], place: str | None) -> str:
    """Write a run for each trial into the experiment of its study; returns the tracking URI.

    Raises:
        ExtraMissing: MLflow is not installed.
        ExportFailed: it does not take the runs, or `place` is no tracking URI.
    """
    try:
        from mlflow.exceptions import MlflowException
        from mlflow.tracking import MlflowClient
    except ImportError as error:
        raise ExtraMissing("an export to MLflow", "mlflow", "mlflow") from error
    try:
        client: Any = MlflowClient(tracking_uri=place)
        for run in runs:
            _write(client, run)
    except MlflowException as error:
        raise ExportFailed(f"MLflow at {place or 'its own place'} says: {error}") from error
    return str(client.tracking_uri)


def _write(client: Any, run: Run) -> None:
    from mlflow.entities import Metric, Param, RunTag

    experiment = _experiment(client, run)
    there = client.search_runs(
        [experiment],
        f"tags.`{STUDY_TAG}` = '{run.study_id}' and tags.`{TRIAL_TAG}` = '{run.trial}'",
        max_results=1,
    )
    if there:
        run_id: str = there[0].info.run_id
    else:
        made = client.create_run(
            experiment, _milliseconds(run.started_at), tags=run.tags, run_name=run.name
        )
        run_id = made.info.run_id
    last = run.curves[-1].epoch if run.curves else 0
    ended = _milliseconds(run.finished_at or run.started_at)
    metrics = [
        Metric(name, value, _milliseconds(point.at), point.epoch)
        for point in run.curves
        for name, value in point.values.items()
    ]
    # Of values of one epoch the latest counts: what was measured again comes after.
    at = round(1000 * time.time()) if there else ended
    metrics += [Metric(name, value, at, last) for name, value in run.values.items()]
    if there:
        known = {
            (metric.key, metric.step, metric.value)
            for name in there[0].data.metrics
            for metric in client.get_metric_history(run_id, name)
        }
        metrics = [one for one in metrics if (one.key, one.step, one.value) not in known]
    params = [Param(name, str(value)) for name, value in run.params.items()]
    tags = [RunTag(name, value) for name, value in run.tags.items()]
    client.log_batch(run_id, params=params, tags=tags)
    for begin in range(0, len(metrics), _MOST_AT_ONCE):
        client.log_batch(run_id, metrics=metrics[begin : begin + _MOST_AT_ONCE])
    status = _STATUS.get(run.outcome, "FINISHED")
    if run.finished_at is None:
        client.update_run(run_id, status=status)
    else:
        client.set_terminated(run_id, status, ended)


def _experiment(client: Any, run: Run) -> str:
    # An id never changes; a name may, and several studies may share it.
    name = f"reflectory {run.study_id}"
    found = client.get_experiment_by_name(name)
    if found is not None:
        return str(found.experiment_id)
    tags = {STUDY_TAG: run.study_id, "reflectory.study_name": run.study_name}
    return str(client.create_experiment(name, tags=tags))


def _milliseconds(at: datetime) -> int:
    return round(1000 * at.timestamp())
