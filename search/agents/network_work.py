"""What an attempt does for a study of a network of others: prepare it, and evaluate its trials."""

import json
import logging
import time
from collections.abc import Callable
from typing import Any, final

from models.errors import ConversionError, GraphRefused, InterpreterError
from models.spec import kind_of
from search.agents.attempt_line import AttemptLine, Hold
from search.errors import DataError, SpecRefused, TrainingDiverged
from search.graphs.evaluator import HandedOut
from search.graphs.fine_tuning import Epoch
from search.graphs.metrics import METRICS
from search.graphs.model_outputs import ModelOutputs
from search.graphs.network_report import PartReport
from search.graphs.opened_network import OpenedNetwork, opened_network
from search.graphs.picks import Objective
from search.tasks import DatasetShelf
from search.training.jobs import (
    ORIGINAL,
    OUT_OF_MEMORY,
    Completion,
    EpochReport,
    EvaluateJob,
    PrepareNetworkJob,
)
from search.training.network_jobs import COMPRESSED
from search.training.run import is_out_of_memory
from search.uploads.arrays import stored_arrays

_log = logging.getLogger(__name__)

_SPANS = {kind_of(one): one.span for one in METRICS}


@final
class OpenedNetworks:
    """The network that a slot's process worked on last, with its fits: opening takes seconds."""

    def __init__(self) -> None:
        self._known: tuple[str, OpenedNetwork] | None = None

    def of(
        self,
        task: ModelOutputs,
        costs: tuple[Objective, ...],
        *,
        line: AttemptLine,
        shelf: DatasetShelf,
    ) -> OpenedNetwork:
        """The network of a task, with its data.

        Raises:
            DataError: one of the two is gone, or they do not go together.
        """
        key = json.dumps([task.model_dump(mode="json"), costs])
        if self._known is None or self._known[0] != key:
            # What was open leaves its memory before the next takes its own.
            self._known = None
            self._known = key, _opened(task, costs, line=line, shelf=shelf)
        return self._known[1]


def prepared(
    network: OpenedNetwork, job: PrepareNetworkJob, *, between: Callable[[], None]
) -> Completion:
    """Fit and probe all layers of a network; `between` is called after each layer."""
    metric = job.task.metric
    offered = network.offered(between)
    _log.info("%d layers were fitted and probed", len(offered.layers))
    found: dict[str, Any] = {
        **network.samples,
        "metric": metric.name,
        "baseline": metric.baseline,
        "offers": offered.encoded(),
        "references": [one.model_dump(mode="json") for one in network.references()],
        "warnings": list(network.warnings),
    }
    if job.task.fine_tune is not None:
        found["fine_tuning"] = network.untrainable
        _log.info("fine-tuning: %s", network.untrainable or "the network can be trained")
    return Completion(outcome="complete", prepared=found)


def evaluated(
    network: OpenedNetwork,
    job: EvaluateJob,
    line: AttemptLine,
    hold: Hold,
    *,
    between: Callable[[], None],
) -> Completion:
    """Make a trial's file, answer with it, and store both the file and what is reported of it.

    Its numbers are trained before, where the trial has `fine_tune`; `between` is called after each
    epoch.
    """
    curve = _Curve(job, line, hold, between)
    try:
        trained = None
        if job.trial.fine_tune is not None:
            trained = network.fine_tuned(job.trial, job.trial.fine_tune, curve.after_epoch)
        made = network.handed_out(job.trial, job.sensitivities, trained)
    except (TrainingDiverged, ConversionError, InterpreterError) as error:
        return curve.infeasible(str(error))
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        return curve.infeasible(f"{OUT_OF_MEMORY}: {error}")
    values, tested = _values(made.report.choosing), _values(made.report.test)
    metric = job.task.metric.name
    best = 0 if trained is None else trained.told.best_epoch
    # What a fresh process has answered is what the file is judged by.
    curve.say(best, values[metric])
    _store(made, line)
    is_complete = curve.last == job.last_epoch
    return Completion(
        outcome="complete" if is_complete else "stopped",
        reason=None if is_complete else curve.why_stopped,
        quality=values[metric],
        test_quality=tested[metric],
        test_metrics=tested,
        best_epoch=best,
        epochs_trained=curve.last,
        agreement=values.get("agreement"),
    )


class _Curve:
    """What is said of a trial's epochs, and whether it goes on."""

    def __init__(
        self, job: EvaluateJob, line: AttemptLine, hold: Hold, between: Callable[[], None]
    ) -> None:
        self._metric = job.task.metric.name
        self._line, self._hold, self._between = line, hold, between
        self._since = time.monotonic()
        self._said: dict[int, EpochReport] = {}
        self.why_stopped: str | None = None

    @property
    def last(self) -> int:
        """The last epoch that was trained; 0: none was."""
        return max(self._said, default=0)

    def after_epoch(self, epoch: Epoch) -> bool:
        """Say an epoch, and hear whether there is to be another."""
        self.say(epoch.number, epoch.value, epoch.train_loss)
        self._hold.check()
        self._between()
        self._since = time.monotonic()
        stop = self._hold.stop
        if stop is not None:
            self.why_stopped = stop.reason
        return stop is None

    def say(self, epoch: int, value: float, train_loss: float | None = None) -> None:
        """Say an epoch; of one that was said before another value alone."""
        value = _within(self._metric, value)
        before = self._said.get(epoch)
        report = EpochReport(
            epoch=epoch,
            train_loss=train_loss,
            validation=value,
            seconds=time.monotonic() - self._since,
            stood_still_seconds=self._hold.stood_still_seconds,
            held_seconds=self._hold.held_seconds,
        )
        if before is not None:
            report = before.model_copy(update={"validation": value})
        if report != before:
            self._said[epoch] = report
            self._line.say_epoch(report, waits=False)

    def infeasible(self, reason: str) -> Completion:
        """It came so far."""
        return Completion(outcome="infeasible", reason=reason, epochs_trained=self.last)


def _store(made: HandedOut, line: AttemptLine) -> None:
    line.put_artifact(COMPRESSED, made.content)
    line.put_artifact("report", made.report.model_dump_json().encode())


def _values(part: PartReport) -> dict[str, float]:
    """By metric; what rounding has put beyond a metric's ends is put back."""
    return {one.metric.kind: _within(one.metric.kind, one.value) for one in part.metrics}


def _within(metric: str, value: float) -> float:
    low, high = _SPANS[metric]
    return min(high, max(low, value))


def _opened(
    task: ModelOutputs,
    costs: tuple[Objective, ...],
    *,
    line: AttemptLine,
    shelf: DatasetShelf,
) -> OpenedNetwork:
    content = line.get_artifact(ORIGINAL)
    if content is None:
        raise DataError(f"the network {task.model} is not there any more: it was deleted")
    if shelf.digest(task.data) != task.known.data_sha256:
        raise DataError(f"the data {task.data} are others than the study was stored with")
    with shelf.open(task.data) as stream:
        arrays = stored_arrays(stream)
    try:
        return opened_network(
            content,
            {name: array for name, array in arrays.items() if name in task.array_names},
            task,
            objectives=costs,
        )
    except (GraphRefused, SpecRefused) as error:
        raise DataError(str(error)) from error
