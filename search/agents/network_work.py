"""What an attempt does for a study of a network of others: prepare it, and evaluate its trials."""

import json
import logging
import time
from typing import final

from models.errors import ConversionError, GraphRefused
from models.spec import kind_of
from search.agents.attempt_line import AttemptLine
from search.errors import DataError, SpecRefused, TrainingDiverged
from search.graphs.evaluator import HandedOut
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


def prepared(network: OpenedNetwork, job: PrepareNetworkJob) -> Completion:
    """Fit and probe all layers of a network."""
    metric = job.task.metric
    offered = network.offered()
    _log.info("%d layers were fitted and probed", len(offered.layers))
    found = {
        **network.samples,
        "metric": metric.name,
        "baseline": metric.baseline,
        "offers": offered.encoded(),
        "references": [one.model_dump(mode="json") for one in network.references()],
        "warnings": list(network.warnings),
    }
    return Completion(outcome="complete", prepared=found)


def evaluated(network: OpenedNetwork, job: EvaluateJob, line: AttemptLine) -> Completion:
    """Make a trial's file, answer with it, and store both the file and what is told of it."""
    began = time.monotonic()
    try:
        made = network.handed_out(job.trial, job.sensitivities)
    except (TrainingDiverged, ConversionError) as error:
        return Completion(outcome="infeasible", reason=str(error))
    except MemoryError as error:
        return Completion(outcome="infeasible", reason=f"{OUT_OF_MEMORY}: {error}")
    values = _values(made.report.choosing)
    tested = _values(made.report.test)
    metric = job.task.metric.name
    report = EpochReport(
        epoch=0, train_loss=None, validation=values[metric], seconds=time.monotonic() - began
    )
    line.say_epoch(report, waits=False)
    _store(made, line)
    return Completion(
        outcome="complete",
        quality=values[metric],
        test_quality=tested[metric],
        test_metrics=tested,
        best_epoch=0,
        agreement=values.get("agreement"),
    )


def _store(made: HandedOut, line: AttemptLine) -> None:
    line.put_artifact(COMPRESSED, made.content)
    line.put_artifact("report", made.report.model_dump_json().encode())


def _values(part: PartReport) -> dict[str, float]:
    """By metric; what rounding has put beyond a metric's ends is put back."""
    found: dict[str, float] = {}
    for one in part.metrics:
        low, high = _SPANS[one.metric.kind]
        found[one.metric.kind] = min(high, max(low, one.value))
    return found


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
