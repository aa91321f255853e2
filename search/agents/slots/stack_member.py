"""One trial of those that a slot's process trains together: its job, up to its last word."""

import logging
import math
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import final

from torch import Tensor

from models.checkpoint import load, save_bytes
from models.errors import CheckpointError, ConversionError
from models.network import Network
from models.report import parameter_report
from search.agents.executor import AttemptTicket
from search.agents.slots.attempt_logs import AttemptLog
from search.agents.slots.member_line import MemberLine
from search.agents.warm_data import TaskData
from search.agents.worker import outcome_of, sources_of
from search.documents.export_kinds import SAMPLES
from search.errors import DataError, TrainingDiverged
from search.tasks import DataSources, Splits
from search.training.conversion import converted, original_of
from search.training.deliverables import checkpoint_metadata
from search.training.jobs import (
    CONVERSION,
    ORIGINAL,
    OUT_OF_MEMORY,
    START,
    Completion,
    EpochReport,
    TrainJob,
    Verdict,
)
from search.training.resume import from_bytes
from search.training.run import is_out_of_memory
from search.training.stacks import Entry, Left, TrainingResult

_log = logging.getLogger(__name__)

Batch = Callable[[], AbstractContextManager[None]]
"""Encloses work on the device."""


@dataclass(frozen=True)
class _Files:
    """What an attempt is given to begin with."""

    resume: bytes | None = None
    original: bytes | None = None
    start: bytes | None = None


@final
class Member:
    """One attempt that trains, see `MemberHooks` for what training asks of it.

    All that concerns it alone is done within its own log.
    """

    def __init__(
        self, ticket: AttemptTicket, job: TrainJob, line: MemberLine, log: AttemptLog
    ) -> None:
        self.ticket, self.job, self.line = ticket, job, line
        self.began_at = time.monotonic()
        self._log = log
        self._files = _Files()
        self._trouble: Exception | None = None
        self._epochs_trained = 0

    @property
    def sources(self) -> DataSources:
        """Where its task's data come from."""
        return sources_of(self.ticket, self.line)

    @property
    def device(self) -> str:
        """Where it is trained, by the name that torch has for it here."""
        return self.ticket.device.partition(":")[0]

    def fetch(self) -> None:
        """Ask for what it begins with, which may take long; what goes wrong is said by `entry`."""
        self._log.within(self._fetch)

    def entry(self, splits: Splits, *, batch: Batch) -> Entry:
        """What training is given of it.

        Raises:
            Exception: what went wrong, for `outcome`.
        """
        return self._log.within(lambda: self._entry(splits, batch))

    def outcome(self, result: TrainingResult | Exception, data: TaskData | None) -> Completion:
        """Store what came of it, and give its last word.

        Raises:
            WorkerRefused: nobody wants to hear it.
            Left: it was to end, and has stored where it was.
        """
        return self._log.within(
            lambda: outcome_of(lambda: self._outcome(result, data)).model_copy(
                update={
                    "stood_still_seconds": self.line.stood_still_seconds,
                    "held_seconds": self.line.held_seconds,
                }
            )
        )

    def close(self, *, why: str = "") -> None:
        """Write the log's last line, if there is one, and close it."""
        if why:
            self._log.within(lambda: _log.info(why))
        self._log.close()

    # What training asks, see `MemberHooks`.

    @property
    def leaves(self) -> bool:
        """Whether it is to store its state and end, at the next batch."""
        return self.line.leaves

    def say_epoch(self, report: EpochReport) -> None:
        """Take note of an epoch."""
        waits_at = self.job.waits_at
        waits = waits_at is None or report.epoch in waits_at
        shares = {
            "held_seconds": self.line.held_seconds,
            "stood_still_seconds": self.line.stood_still_seconds,
        }
        self.line.say_epoch(report.model_copy(update=shares), waits=waits)
        self._epochs_trained = report.epoch
        self._log.within(
            lambda: _log.info("epoch %d: validation %.6g", report.epoch, report.validation)
        )

    def hear_verdict(self) -> Verdict:
        """Say whether to go on after the epoch of which note was taken last."""
        return self.line.hear_verdict()

    def save(self, resume: bytes) -> None:
        """Keep the state from which training goes on."""
        self.line.put_artifact("resume", resume)

    # Its beginning.

    def _fetch(self) -> None:
        _log.info("%s job begins on %s", self.job.kind, self.device)
        try:
            resume = self._resume()
            begins = resume is None and self.job.continues is None
            original = self._original() if begins or self._is_taught else None
            start = (
                self._checkpoint() if resume is None and self.job.continues is not None else None
            )
            self._files = _Files(resume, original, start)
        except Exception as error:
            self._trouble = error

    def _resume(self) -> bytes | None:
        """Where an earlier attempt of the trial was stored; null where that is of no use."""
        resume = self.line.get_artifact("resume")
        if resume is None:
            return None
        try:
            self._epochs_trained = from_bytes(resume, job=self.job).position.epochs_trained
        except CheckpointError as error:
            # The numbers are the same from the start: the trial's seed determines them.
            _log.warning("the state to resume from is of no use: %s; training starts anew", error)
            return None
        _log.info("resumed after epoch %d", self._epochs_trained)
        return resume

    @property
    def _is_taught(self) -> bool:
        """Whether the trial learns from its original's answers, all the time that it trains."""
        compression = self.job.trial.compression
        return compression is not None and compression.distillation is not None

    def _original(self) -> bytes | None:
        """The model that the study compresses, if it does."""
        if self.job.trial.compression is None:
            return None
        content = self.line.get_artifact(ORIGINAL)
        if content is None:
            raise DataError("the model that the study compresses is not there any more")
        return content

    def _checkpoint(self) -> bytes:
        """The model of the trial that this one continues."""
        number = self.job.continues
        checkpoint = self.line.get_artifact(START)
        if checkpoint is None:
            raise CheckpointError(f"trial {number}, which this one continues, has no checkpoint")
        _log.info("started from the checkpoint of trial %d", number)
        return checkpoint

    def _entry(self, splits: Splits, batch: Batch) -> Entry:
        if self.leaves:
            raise Left
        if self._trouble is not None:
            raise self._trouble
        files, trial = self._files, self.job.trial
        original = None if files.original is None else original_of(files.original, trial)
        start = None
        if files.start is not None:
            start = load(files.start).module.state_dict()
        elif files.resume is None and original is not None:
            start = self._converted(original, splits, batch)
        return Entry(self.job, self, files.resume, start, original)

    def _converted(
        self, original: Network, splits: Splits, batch: Batch
    ) -> Mapping[str, Tensor] | None:
        """What the original becomes in the trial's own form."""
        compression = self.job.trial.compression
        if compression is None:
            return None
        if compression.is_original:
            return original.state_dict()
        # As a batch is: the conversion computes on the device that others may be measured on.
        with batch():
            found = converted(original, self.job.trial, splits.train)
        _log.info("the original was converted: output error %s", found.report.output_error)
        self.line.put_artifact(CONVERSION, found.report.model_dump_json().encode())
        return found.network.state_dict()

    # Its end.

    def _outcome(self, result: TrainingResult | Exception, data: TaskData | None) -> Completion:
        try:
            if isinstance(result, Exception):
                raise result
        except (TrainingDiverged, ConversionError) as error:
            return self._infeasible(str(error))
        except (RuntimeError, MemoryError) as error:
            if not is_out_of_memory(error):
                raise
            _log.warning("out of memory", exc_info=True)
            return self._infeasible(f"{OUT_OF_MEMORY}: {str(error).partition('. ')[0]}")
        assert data is not None
        self._store(result, data)
        return Completion(
            outcome=result.outcome,
            reason=result.reason,
            quality=result.quality,
            test_quality=result.test_quality,
            test_metrics=_finite(result.test_metrics),
            best_epoch=result.best_epoch,
            epochs_trained=result.epochs_trained,
        )

    def _infeasible(self, reason: str) -> Completion:
        return Completion(outcome="infeasible", reason=reason, epochs_trained=self._epochs_trained)

    def _store(self, result: TrainingResult, data: TaskData) -> None:
        """Store what a user downloads, and what it is judged by: before the trial is complete."""
        spec = self.job.trial.model
        self.line.put_artifact(SAMPLES, data.samples.to_bytes())
        extra = checkpoint_metadata(
            self.job.task,
            self.job.trial,
            epoch=result.best_epoch,
            continues=self.job.continues,
            interface=data.interface,
        )
        self.line.put_artifact("checkpoint", save_bytes(result.module, spec, extra=extra))
        self.line.put_artifact("report", parameter_report(spec).model_dump_json().encode())


def _finite(metrics: Mapping[str, float]) -> dict[str, float]:
    """What JSON can say; the task's own metric is known to be finite."""
    return {name: value for name, value in metrics.items() if math.isfinite(value)}
