"""Training one trial: epochs, the best of them by validation, resumable at any batch."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

import torch
from torch import Tensor

from models.network import Network
from search.tasks import Criterion, Splits
from search.training.jobs import EpochReport, TrainJob, Verdict
from search.training.stacks import (
    Clock,
    Entry,
    TrainingResult,
    train_stack,
)


class TrainingHooks(Clock, Protocol):
    """What training one trial asks of its caller."""

    def epoch_done(self, report: EpochReport) -> Verdict:
        """Take note of an epoch, and say whether to go on."""
        ...

    def save(self, resume: bytes) -> None:
        """Keep the state from which training goes on; the newest one replaces the others."""
        ...


def train(
    job: TrainJob,
    splits: Splits,
    *,
    task: Criterion,
    hooks: TrainingHooks,
    resume: bytes | None = None,
    start: Mapping[str, Tensor] | None = None,
    original: Network | None = None,
    device: torch.device | str = "cpu",
) -> TrainingResult:
    """Train a trial to its budget of epochs, or until the verdict says stop or pause.

    A trial that pauses stores its state first, and goes on from there when it is resumed.

    What is differentiated is the task's loss and the weights' own penalties; the learning rate is
    `learning_rate * decay^(epoch - 1)`. The trial's seed fixes the initialisation and the order of
    the data, a fresh permutation in each epoch whose last, short batch is kept; with
    `epoch_updates` an epoch is so many batches of passes that run on. The best epoch is that of the
    best validation metric; of several, that of the lowest validation loss, for a few samples give
    but a few values of an accuracy. Where no samples are held out for validation it is the last
    one. A trial that starts from a trained network has an epoch 0, in which that is validated as it
    is, and which may be the best. On one CPU thread a run that was cut off and resumed gives the
    same numbers as an unbroken one, bit for bit.

    A model with few bits is trained with all 32. After each epoch its weights are rounded, and it
    is these that are validated and kept where they are the best; training goes on from the others.
    In the last `quantised_epochs` of the budget each step's gradient is the one at the rounded
    weights, so that what rounding does is learned from.

    Args:
        job: the trial, its budget of epochs and the time between two resume files.
        splits: the task's data.
        task: gives the loss and the metric.
        hooks: the lock around batches, reports and resume files.
        resume: the newest resume file of the same trial; None starts anew.
        start: the module's state to start anew from, in place of the seed's initialisation.
        original: what the trial learns from besides, where its spec says that it does.
        device: where to train.

    Raises:
        TrainingDiverged: A validation output is NaN or Inf; or a loss or a gradient's norm, without
            `nan_recovery`, or in every batch of an epoch in spite of it.
        CheckpointError: `resume` is damaged or belongs to another trial.
    """
    entry = Entry(job, _OfOne(hooks), resume=resume, start=start, original=original)
    alone = _Alone(entry, hooks)
    train_stack(splits, task=task, hooks=alone, device=device)
    if isinstance(alone.result, TrainingResult):
        return alone.result
    assert alone.result is not None
    raise alone.result


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error says that memory ran out: on the GPU, in Python, or in torch on the CPU."""
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    # The CPU allocator raises a plain RuntimeError.
    phrases = ("can't allocate memory", "not enough memory")
    return isinstance(error, RuntimeError) and any(phrase in str(error) for phrase in phrases)


class _OfOne:
    """The hooks of one trial, as those of a stack's member."""

    leaves = False

    def __init__(self, hooks: TrainingHooks) -> None:
        self._hooks, self.save = hooks, hooks.save
        self._verdict = Verdict(lease_seconds=0)

    def say_epoch(self, report: EpochReport) -> None:
        self._verdict = self._hooks.epoch_done(report)

    def hear_verdict(self) -> Verdict:
        return self._verdict


class _Alone:
    """One trial, as hooks of a stack."""

    def __init__(self, entry: Entry, hooks: TrainingHooks) -> None:
        self._entries, self._hooks = [entry], hooks
        self.result: TrainingResult | Exception | None = None

    @property
    def stood_still_seconds(self) -> float:
        return self._hooks.stood_still_seconds

    def batch(self) -> AbstractContextManager[None]:
        return self._hooks.batch()

    def newcomers(self) -> Sequence[Entry]:
        entries, self._entries = self._entries, []
        return entries

    def ended(self, entry: Entry, result: TrainingResult | Exception) -> None:  # noqa: ARG002
        self.result = result
