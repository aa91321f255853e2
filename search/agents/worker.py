"""One attempt: do its job, say what comes of it, and how it ended."""

import logging
import math
import signal
import sys
import traceback
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Any, Final, final

from torch import Tensor

from models.checkpoint import load, save_bytes
from models.errors import CheckpointError, ConversionError, ToolMissing
from models.interface import Interface
from models.network import Network
from models.report import parameter_report
from search.agents.attempt_line import AttemptLine, Hold
from search.agents.executor import AttemptTicket
from search.agents.fetched_datasets import FetchedDatasets
from search.agents.warm_data import WarmData
from search.documents.export_kinds import SAMPLES
from search.errors import DataError, TrainingDiverged, WorkerRefused
from search.logs import JsonLines, bind_for_good
from search.measuring.measurement_lock import MeasurementLock
from search.measuring.throughput import measure
from search.tasks import DataSources, RawSamples, Splits
from search.training.conversion import converted, original_of
from search.training.deliverables import checkpoint_metadata, stored_interface
from search.training.jobs import (
    CONVERSION,
    ORIGINAL,
    START,
    Completion,
    EpochReport,
    Job,
    MeasureJob,
    PrepareJob,
    Progress,
    TrainJob,
    Verdict,
)
from search.training.resume import from_bytes
from search.training.run import TrainingResult, is_out_of_memory, train

_log = logging.getLogger(__name__)

DONE: Final = 0
"""Exit code: the job ended in a way that the protocol foresees, and was reported."""
FAILED: Final = 1
"""Exit code: something unexpected happened, and was reported."""
TERMINATED: Final = 128 + signal.SIGTERM
"""Exit code: SIGTERM came, the state to resume from was stored, and nothing else was reported."""

_TRACEBACK_LINES = 12


@dataclass(frozen=True)
class _Attempt:
    """What every kind of job is done with."""

    link: AttemptLine
    hold: Hold
    lock: MeasurementLock
    sources: DataSources
    device: str
    data: WarmData


class Terminated(Exception):
    """SIGTERM came and the state to resume from is stored."""


def do(
    job: Job,
    ticket: AttemptTicket,
    *,
    line: AttemptLine,
    hold: Hold,
    lock: MeasurementLock,
    data: WarmData,
) -> Completion:
    """Do an attempt's job and return its last word; all others go over the line.

    Raises:
        WorkerRefused: the lease is over, and nobody wants to hear a word.
        Terminated: SIGTERM came, and the state to resume from was stored.
    """
    datasets = FetchedDatasets(line, ticket.cache)
    sources = DataSources(cache=ticket.cache, folder=ticket.data, datasets=datasets)
    # CUDA_VISIBLE_DEVICES leaves this process one GPU, which is then `cuda`.
    device = ticket.device.partition(":")[0]
    completion = _outcome(job, _Attempt(line, hold, lock, sources, device, data))
    times = {"stood_still_seconds": lock.stood_still_seconds, "held_seconds": hold.held_seconds}
    return completion.model_copy(update=times)


def _outcome(job: Job, attempt: _Attempt) -> Completion:
    """Do the job; whatever goes wrong becomes its outcome, unless nobody wants to hear it."""
    try:
        _log.info("%s job begins on %s", job.kind, attempt.device)
        completion = _JOBS[type(job)](job, attempt)
    except (WorkerRefused, Terminated):
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


def _train(job: TrainJob, attempt: _Attempt) -> Completion:
    hooks = _Hooks(attempt, job.waits_at)
    resume = _resume(job, attempt, hooks)
    begins = resume is None and job.continues is None
    original = _original(job, attempt) if begins or _is_taught(job) else None
    data = attempt.data.of(job.task, attempt.sources)
    splits, interface, samples = data.splits, data.interface, data.samples
    try:
        start = None
        if resume is None:
            start = _start(job, attempt, hooks, original=original, splits=splits)
        with _on_sigterm(hooks.terminate):
            result = train(
                job,
                splits,
                task=job.task,
                hooks=hooks,
                resume=resume,
                start=start,
                original=original,
                device=attempt.device,
            )
    except (TrainingDiverged, ConversionError) as error:
        return _infeasible(str(error), hooks)
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        _log.warning("out of memory", exc_info=True)
        return _infeasible(f"out of memory: {str(error).partition('. ')[0]}", hooks)
    _store(result, job, attempt.link, interface=interface, samples=samples)
    return Completion(
        outcome=result.outcome,
        reason=result.reason,
        quality=result.quality,
        test_quality=result.test_quality,
        test_metrics=_finite(result.test_metrics),
        best_epoch=result.best_epoch,
        epochs_trained=result.epochs_trained,
    )


def _finite(metrics: Mapping[str, float]) -> dict[str, float]:
    """What JSON can say; the task's own metric is known to be finite."""
    return {name: value for name, value in metrics.items() if math.isfinite(value)}


def _resume(job: TrainJob, attempt: _Attempt, hooks: "_Hooks") -> bytes | None:
    """Where an earlier attempt of the trial was stored; from the start where that is of no use."""
    resume = attempt.link.get_artifact("resume")
    if resume is None:
        return None
    try:
        hooks.epochs_trained = from_bytes(resume, job=job).position.epochs_trained
    except CheckpointError as error:
        # The numbers are the same from the start: training is deterministic in the trial's seed.
        _log.warning("the state to resume from is of no use: %s; training starts anew", error)
        return None
    _log.info("resumed after epoch %d", hooks.epochs_trained)
    return resume


def _is_taught(job: TrainJob) -> bool:
    """Whether the trial learns from its original's answers, all the time that it trains."""
    compression = job.trial.compression
    return compression is not None and compression.distillation is not None


def _original(job: TrainJob, attempt: _Attempt) -> Network | None:
    """The model that the study compresses, if it does."""
    if job.trial.compression is None:
        return None
    content = attempt.link.get_artifact(ORIGINAL)
    if content is None:
        raise DataError("the model that the study compresses is not there any more")
    return original_of(content, job.trial)


def _start(
    job: TrainJob,
    attempt: _Attempt,
    hooks: "_Hooks",
    *,
    original: Network | None,
    splits: Splits,
) -> Mapping[str, Tensor] | None:
    """The model that training begins with, where the trial's seed does not make it."""
    if job.continues is not None:
        return _continued(job, attempt)
    compression = job.trial.compression
    if original is None or compression is None:
        return None
    if compression.is_original:
        return original.state_dict()
    # As a batch is: the conversion computes on the device that others may be measured on.
    with hooks.batch():
        found = converted(original, job.trial, splits.train)
    _log.info("the original was converted: output error %s", found.report.output_error)
    attempt.link.put_artifact(CONVERSION, found.report.model_dump_json().encode())
    return found.network.state_dict()


def _continued(job: TrainJob, attempt: _Attempt) -> Mapping[str, Tensor]:
    checkpoint = attempt.link.get_artifact(START)
    if checkpoint is None:
        raise CheckpointError(f"trial {job.continues}, which this one continues, has no checkpoint")
    _log.info("started from the checkpoint of trial %d", job.continues)
    return load(checkpoint).module.state_dict()


_JOBS: Mapping[type[Job], Callable[[Any, _Attempt], Completion]] = {
    PrepareJob: _prepare,
    MeasureJob: _measure,
    TrainJob: _train,
}


@final
class _Hooks:
    """What training asks of the worker, see `TrainingHooks`."""

    def __init__(self, attempt: _Attempt, waits_at: tuple[int, ...] | None) -> None:
        self._attempt = attempt
        self._waits_at = waits_at
        self._terminating = False
        self.epochs_trained = 0

    @property
    def stood_still_seconds(self) -> float:
        return self._attempt.lock.stood_still_seconds

    @contextmanager
    def batch(self) -> Generator[None]:
        self._attempt.hold.check()
        with self._attempt.lock.shared():
            yield

    def epoch_done(self, report: EpochReport) -> Verdict:
        held = {"held_seconds": self._attempt.hold.held_seconds}
        waits = self._waits_at is None or report.epoch in self._waits_at
        verdict = self._attempt.link.epoch(report.model_copy(update=held), waits=waits)
        self.epochs_trained = report.epoch
        _log.info("epoch %d: validation %.6g", report.epoch, report.validation)
        return self._attempt.hold.stop or verdict

    def save(self, resume: bytes) -> None:
        self._attempt.link.put_artifact("resume", resume)
        if self._terminating:
            raise Terminated

    def terminate(self) -> None:
        """End after the next time that training stores its state."""
        self._terminating = True


def _store(
    result: TrainingResult,
    job: TrainJob,
    link: AttemptLine,
    *,
    interface: Interface,
    samples: RawSamples,
) -> None:
    """Store what a user downloads, and what it is judged by: before the trial is complete."""
    spec = job.trial.model
    link.put_artifact(SAMPLES, samples.to_bytes())
    extra = checkpoint_metadata(
        job.task,
        job.trial,
        epoch=result.best_epoch,
        continues=job.continues,
        interface=interface,
    )
    link.put_artifact("checkpoint", save_bytes(result.module, spec, extra=extra))
    link.put_artifact("report", parameter_report(spec).model_dump_json().encode())


def _infeasible(reason: str, hooks: _Hooks) -> Completion:
    return Completion(outcome="infeasible", reason=reason, epochs_trained=hooks.epochs_trained)


@contextmanager
def _on_sigterm(act: Callable[[], None]) -> Generator[None]:
    """Have SIGTERM call `act` meanwhile, in place of ending the process on the spot."""

    def handle(_number: int, _frame: FrameType | None) -> None:
        act()

    before = signal.signal(signal.SIGTERM, handle)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _last_lines(error: Exception) -> str:
    lines = "".join(traceback.format_exception(error)).splitlines()
    return "\n".join(lines[-_TRACEBACK_LINES:])


def configure_logging(ticket: AttemptTicket) -> None:
    """Have all that is logged in this process go where the ticket says, as it says."""
    handler = logging.StreamHandler(sys.stderr)
    if ticket.log_format == "json":
        bind_for_good(**ticket.log_fields)
        handler.setFormatter(JsonLines("worker"))
    else:
        # The file is this attempt's alone, and read by people: fields would say the same each time.
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
    # A line for each request says nothing that our own lines do not.
    logging.getLogger("httpx2").setLevel(logging.WARNING)
