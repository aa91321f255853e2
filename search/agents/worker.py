"""One attempt: do its job, say what comes of it, and how it ended."""

import logging
import signal
import traceback
from collections.abc import Callable, Generator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any, Final

from models.errors import ToolMissing
from search.agents.attempt_line import AttemptLine, Hold
from search.agents.executor import AttemptTicket
from search.agents.fetched_datasets import FetchedDatasets
from search.agents.network_work import OpenedNetworks, evaluated, prepared
from search.errors import DataError, WorkerRefused
from search.graphs.opened_network import OpenedNetwork
from search.measuring.measurement_lock import MeasurementLock
from search.measuring.network_throughput import measure_network
from search.measuring.throughput import measure
from search.tasks import DataSources
from search.training.deliverables import stored_interface
from search.training.jobs import (
    Completion,
    EvaluateJob,
    LoneJob,
    MeasureJob,
    MeasureNetworkJob,
    PrepareJob,
    PrepareNetworkJob,
    Progress,
)
from search.training.stacks import Left

_log = logging.getLogger(__name__)

DONE: Final = 0
"""Exit code: the job ended in a way that the protocol foresees, and was reported."""
FAILED: Final = 1
"""Exit code: something unexpected happened, and was reported."""
TERMINATED: Final = 128 + signal.SIGTERM
"""Exit code: it was to end, the state to resume from was stored, and nothing else was reported."""

_TRACEBACK_LINES = 12


@dataclass(frozen=True)
class _Attempt:
    """What a job is done with."""

    link: AttemptLine
    hold: Hold
    lock: MeasurementLock
    sources: DataSources
    device: str
    networks: OpenedNetworks


def do(
    job: LoneJob,
    ticket: AttemptTicket,
    *,
    line: AttemptLine,
    hold: Hold,
    lock: MeasurementLock,
    networks: OpenedNetworks,
) -> Completion:
    """Do an attempt's job and return its last word; all others go over the line.

    Trials are trained by `search.agents.slots.stack`. `networks` are kept from one job to the next.

    Raises:
        WorkerRefused: the lease is over, and nobody wants to hear a word.
    """
    # CUDA_VISIBLE_DEVICES leaves this process one GPU, which is then `cuda`.
    device = ticket.device.partition(":")[0]
    attempt = _Attempt(line, hold, lock, sources_of(ticket, line), device, networks)
    _log.info("%s job begins on %s", job.kind, device)
    completion = outcome_of(lambda: _JOBS[type(job)](job, attempt))
    times = {
        "stood_still_seconds": hold.stood_still_seconds,
        "held_seconds": hold.held_seconds,
    }
    return completion.model_copy(update=times)


def sources_of(ticket: AttemptTicket, line: AttemptLine) -> DataSources:
    """Where an attempt finds its task's data."""
    datasets = FetchedDatasets(line, ticket.cache)
    return DataSources(cache=ticket.cache, folder=ticket.data, datasets=datasets)


def outcome_of(work: Callable[[], Completion]) -> Completion:
    """Do it; whatever goes wrong becomes its outcome.

    Raises:
        WorkerRefused: nobody wants to hear it.
        Left: the attempt was to end, and has no outcome.
    """
    try:
        completion = work()
    except (WorkerRefused, Left):
        raise
    except DataError as error:
        completion = Completion(outcome="data", reason=str(error))
    except ToolMissing as error:
        # Where it ran says nothing that its sentence does not.
        completion = Completion(outcome="failed", reason=str(error))
    except Exception as error:
        _log.exception("the attempt failed")
        completion = Completion(outcome="failed", reason=_last_lines(error))
    _log.info("the attempt ends as %s: %s", completion.outcome, completion.reason)
    return completion


def _prepare(job: PrepareJob, attempt: _Attempt) -> Completion:
    def report(file: str, received: int, total: int) -> None:
        attempt.hold.check()
        attempt.link.progress(Progress(file=file, received=received, total=total))

    splits = job.task.load(attempt.sources, progress=report)
    metric = job.task.metric
    found = {
        **splits.sizes,
        "metric": metric.name,
        "baseline": metric.baseline,
        "interface": stored_interface(job.task.interface(attempt.sources)),
    }
    return Completion(outcome="complete", prepared=found)


def _measure(job: MeasureJob, attempt: _Attempt) -> Completion:
    # The lock is held for one shape at a time: a service that answers slowly keeps nobody waiting.
    for report in measure(job, device=attempt.device, alone=attempt.lock.exclusive):
        attempt.link.measurement(report)
        attempt.hold.check()
    return Completion(outcome="complete")


def _prepare_network(job: PrepareNetworkJob, attempt: _Attempt) -> Completion:
    with _beside_others(attempt) as let_others_measure:
        return prepared(_network(job, attempt), job, between=let_others_measure)


def _evaluate(job: EvaluateJob, attempt: _Attempt) -> Completion:
    with _beside_others(attempt) as let_others_measure:
        network = _network(job, attempt)
        return evaluated(network, job, attempt.link, attempt.hold, between=let_others_measure)


@contextmanager
def _beside_others(attempt: _Attempt) -> Generator[Callable[[], None]]:
    """Compute while nobody measures; what is given lets those who wait for that go first."""
    with ExitStack() as held:
        held.enter_context(attempt.lock.shared())

        def let_others_measure() -> None:
            held.close()
            held.enter_context(attempt.lock.shared())

        yield let_others_measure


def _network(
    job: PrepareNetworkJob | MeasureNetworkJob | EvaluateJob, attempt: _Attempt
) -> OpenedNetwork:
    shelf = attempt.sources.datasets
    assert shelf is not None
    return attempt.networks.of(job.task, job.costs, line=attempt.link, shelf=shelf)


def _measure_network(job: MeasureNetworkJob, attempt: _Attempt) -> Completion:
    # To open a network takes seconds, which others that are measured would feel.
    with attempt.lock.shared():
        network = _network(job, attempt)
    lock = attempt.lock
    for report in measure_network(job, network, alone=lock.exclusive, beside=lock.shared):
        attempt.link.measurement(report)
        attempt.hold.check()
    return Completion(outcome="complete")


_JOBS: Mapping[type[LoneJob], Callable[[Any, _Attempt], Completion]] = {
    PrepareJob: _prepare,
    PrepareNetworkJob: _prepare_network,
    MeasureJob: _measure,
    MeasureNetworkJob: _measure_network,
    EvaluateJob: _evaluate,
}


def _last_lines(error: Exception) -> str:
    lines = "".join(traceback.format_exception(error)).splitlines()
    return "\n".join(lines[-_TRACEBACK_LINES:])
