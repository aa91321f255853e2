"""One trial in training: how far it is, what it has to say, and when it ends."""

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

import torch
from torch import Tensor

from models.errors import CheckpointError
from models.network import Network
from models.quantization import Bits
from search.documents.gradients import ProbedGradient
from search.errors import TrainingDiverged
from search.tasks import Criterion, Samples
from search.training.distillation import Teacher
from search.training.jobs import MOST_PROBES, EpochReport, Verdict
from search.training.resume import Position, ResumeState, Tensors, from_bytes, to_bytes
from search.training.stacks.entries import Entry, TrainingResult
from search.training.stacks.member_numbers import Numbers, seeded
from search.training.stacks.passes import EpochBatches, draw_epoch
from search.training.trained_losses import criterion_of

_OUTCOMES: Final[Mapping[str, Literal["stopped", "paused"]]] = {
    "stop": "stopped",
    "pause": "paused",
}
"""What becomes of training that ends before its last epoch, by the verdict."""
_SAVING_SHARE: Final = 1 / 20
"""Of a trial's time, that storing its state may take."""
_STORED_BYTES_PER_SECOND: Final = 50e6
"""What agent and service pass on, with a core: hashed three times, sent, and written twice."""
_LONGEST_PAUSE_SECONDS: Final = 300.0
"""Until the next time, however long storing took: the store may have been away for a while."""
_REPEATED_SHARE: Final = 1 / 100
"""Of what a trial has trained, that it may repeat when it is lost; a minute at most."""
_MOST_REPEATED_SECONDS: Final = 60.0


def pause_between_saves(
    least_seconds: float, *, trained_seconds: float, saving_seconds: float
) -> float:
    """Seconds from one state that a trial stores to the next.

    Each costs the machine and the service some time: what the next loss saves is to be worth it.

    Args:
        least_seconds: what the job says; 0: there is no pause.
        trained_seconds: for how long the trial has been trained here.
        saving_seconds: what storing took the last time: seconds, for a large network.
    """
    if not least_seconds:
        return 0.0
    repeated = min(_MOST_REPEATED_SECONDS, _REPEATED_SHARE * trained_seconds)
    return max(least_seconds, repeated, min(_LONGEST_PAUSE_SECONDS, saving_seconds / _SAVING_SHARE))


@dataclass(frozen=True)
class Step:
    """What a training step gave; numbers that are not finite say so themselves."""

    total: float
    """What is differentiated."""
    norm: float | None
    """The gradient's; None where there is none, for `total` is no number."""
    loss: float
    """The task's alone."""
    samples: int
    gradient_first: float | None = None
    gradient_last: float | None = None

    @property
    def is_finite(self) -> bool:
        """Whether the gradient could be used."""
        return self.norm is not None and math.isfinite(self.total) and math.isfinite(self.norm)


@dataclass(frozen=True)
class Found:
    """What an evaluation gave."""

    values: Mapping[str, float]
    loss: float | None
    """The mean over its samples; None where that is no number."""


@dataclass
class Progress:
    """A `Position` that moves; the fields are the same."""

    epoch: int = 1
    batch: int = 0
    pass_batches: int = 0
    loss_sum: float = 0.0
    loss_samples: int = 0
    recovered_batches: int = 0
    gradient_first: float | None = None
    gradient_last: float | None = None
    probes: tuple[ProbedGradient, ...] = ()
    seconds: float = 0.0
    best_epoch: int = 0
    best_quality: float | None = None
    best_loss: float | None = None
    stale_epochs: int = 0
    plateau_epochs: int = 0
    plateau_steps: int = 0

    def position(self) -> Position:
        """As it is stored."""
        return Position.model_validate(vars(self))

    def add(self, step: Step) -> None:
        """One more batch is done; numbers that are not finite are left out."""
        self.batch += 1
        if math.isfinite(step.loss):
            self.loss_sum += step.loss * step.samples
            self.loss_samples += step.samples
        self.recovered_batches += not step.is_finite
        self.gradient_first = _finite_or_none(step.gradient_first)
        self.gradient_last = _finite_or_none(step.gradient_last)


class Member:
    """A trial, apart from who computes it."""

    def __init__(
        self, entry: Entry, *, task: Criterion, device: torch.device, chooses: bool = True
    ) -> None:
        """Begin anew, or where the resume file was written.

        Without `chooses` validation tells nothing, and the last epoch is kept as the best.

        Raises:
            CheckpointError: the resume file is damaged, or belongs to another trial.
            ValueError: an original is needed, and not given.
        """
        self.entry, self.device, self._chooses = entry, device, chooses
        self.job, self.training = entry.job, entry.job.trial.training
        self.task = criterion_of(task, self.training)
        trial = self.job.trial
        compression = trial.compression
        self.last_epoch = self.job.last_epoch
        self.bits: Bits | None = trial.model.rounded_to
        self.distillation = None if compression is None else compression.distillation
        self.teacher: Teacher | None = None
        if self.distillation is not None:
            if entry.original is None:
                raise ValueError("a trial that learns from its original's answers is given none")
            self.teacher = Teacher(entry.original, self.distillation, device)
        self.progress = Progress(epoch=self.job.first_epoch)
        self.order = torch.Generator().manual_seed(trial.seed)
        self.best: Tensors = {}
        self.best_unrounded: Tensors = {}
        self.best_optimizer: Tensors = {}
        state = None if entry.resume is None else from_bytes(entry.resume, job=self.job)
        self.module: Network = trial.model.unrounded.build(seed=trial.seed).to(device)
        """The trial's module: who computes it alone does it with this one."""
        self._start: Numbers | None = (
            self._restored(state) if state is not None else self._fresh(entry)
        )
        self.order_at_epoch_start = self.order.get_state()
        self._epoch = EpochBatches((), frozenset({0}), 0)
        self._begun_at = self._saved_at = time.monotonic()
        self._saving_seconds = 0.0
        self.verdict = Verdict(lease_seconds=0)

    def take_start(self) -> Numbers:
        """What it begins with, which is asked for once."""
        start, self._start = self._start, None
        assert start is not None
        return start

    @property
    def is_over(self) -> bool:
        """Whether it trains no more."""
        return self._is_complete or self.verdict.verdict != "continue"

    @property
    def outcome(self) -> Literal["complete", "stopped", "paused"]:
        """How it ends: a verdict after the last epoch that it trains ends nothing."""
        return "complete" if self._is_complete else _OUTCOMES[self.verdict.verdict]

    @property
    def _is_complete(self) -> bool:
        return self.progress.epoch > self.last_epoch or self.why_complete is not None

    @property
    def why_complete(self) -> str | None:
        """Why it is complete before the last epoch of its budget; None where it is not."""
        progress, name = self.progress, self.task.metric.name
        patience, plateau = self.training.patience, self.training.plateau
        if patience is not None and progress.stale_epochs >= patience:
            return f"no better {name} in {patience} epochs, which is its patience"
        if plateau is not None and self._is_at_plateau and progress.plateau_steps >= plateau.most:
            return (
                f"no better {name} in {plateau.stale} epochs, with its learning rate lowered "
                f"{plateau.most} times"
            )
        return None

    @property
    def _is_at_plateau(self) -> bool:
        plateau = self.training.plateau
        return plateau is not None and self.progress.plateau_epochs >= plateau.stale

    @property
    def rate_factor(self) -> float:
        """`decay^(epoch - 1)` of the epoch underway, times the plateau's factor for each step."""
        factor = self.training.decay ** (self.progress.epoch - 1)
        plateau = self.training.plateau
        return factor if plateau is None else factor * plateau.factor**self.progress.plateau_steps

    @property
    def learning_rate(self) -> float:
        """Of the epoch underway."""
        return self.training.learning_rate * self.rate_factor

    @property
    def goes_back(self) -> bool:
        """Whether it may go on from its best epoch, with the optimizer's state of then."""
        return self.training.plateau is not None and self.training.plateau.restore

    @property
    def bits_of_steps(self) -> Bits | None:
        """What weights are rounded to in the steps of the epoch underway."""
        first = self.last_epoch - self.training.quantised_epochs + 1
        return self.bits if self.progress.epoch >= first else None

    @property
    def batches(self) -> Sequence[Tensor]:
        """Those of the epoch underway."""
        return self._epoch.batches

    @property
    def begins_pass(self) -> bool:
        """Whether the next batch is the first one of a pass over the samples."""
        return self.progress.batch in self._epoch.starts

    def begin_epoch(self, samples: Samples) -> None:
        """Draw the order of the epoch's data."""
        self.order_at_epoch_start = self.order.get_state()
        self._epoch = draw_epoch(
            samples,
            self.training.batch_size,
            self.order,
            updates=self.training.epoch_updates,
            done=self.progress.pass_batches,
        )

    @property
    def next_update(self) -> int:
        """The number of the next update, counted from the trial's first."""
        return (max(1, self.progress.epoch) - 1) * len(self.batches) + self.progress.batch + 1

    @property
    def is_probed(self) -> bool:
        """Whether the next update's gradients are reported, beside those of the epoch's last."""
        every = self.training.probe_every
        is_due = every is not None and self.next_update % every == 0
        return is_due and len(self.progress.probes) < MOST_PROBES

    def batch_done(self, step: Step) -> None:
        """Take note of a step.

        Raises:
            TrainingDiverged: a number is not finite, and training knows no way on.
        """
        if not step.is_finite and self.training.nan_recovery is None:
            total = math.isfinite(step.total)
            what = f"the gradient's norm is {step.norm}" if total else f"the loss is {step.total}"
            progress = self.progress
            raise TrainingDiverged(f"epoch {progress.epoch}, batch {progress.batch + 1}: {what}")
        probe = None
        if self.is_probed:
            probe = ProbedGradient(
                update=self.next_update,
                first=_finite_or_none(step.gradient_first),
                last=_finite_or_none(step.gradient_last),
            )
        self.progress.add(step)
        if probe is not None:
            self.progress.probes = (*self.progress.probes, probe)

    def check_epoch(self) -> None:
        """Refuse an epoch that taught nothing.

        Raises:
            TrainingDiverged: every batch needed recovery.
        """
        progress = self.progress
        if progress.epoch > 0 and progress.recovered_batches == progress.batch:
            raise TrainingDiverged(
                f"epoch {progress.epoch}: the loss or the gradient's norm of all {progress.batch} "
                f"batches is NaN or Inf, with nan_recovery {self.training.nan_recovery}"
            )

    def is_best(self, found: Found) -> bool:
        """Whether what was just validated is the best so far."""
        progress, metric = self.progress, self.task.metric
        quality, best = found.values[metric.name], progress.best_quality
        if best is None or not self._chooses:
            return True
        if quality != best:
            return metric.is_better(quality, best)
        best_loss = progress.best_loss
        return found.loss is not None and (best_loss is None or found.loss < best_loss)

    def count_stale(self, found: Found) -> None:
        """Count the epoch that was just validated, before it may become the best.

        A tie is no better, whatever its loss is.
        """
        progress, metric = self.progress, self.task.metric
        best = progress.best_quality
        is_better = best is None or metric.is_better(found.values[metric.name], best)
        progress.stale_epochs = 0 if is_better else progress.stale_epochs + 1
        progress.plateau_epochs = 0 if is_better else progress.plateau_epochs + 1

    def take_best(
        self, found: Found, state: Tensors, *, unrounded: Tensors, optimizer: Tensors
    ) -> None:
        """Keep what was just validated as the best."""
        progress = self.progress
        self.best, self.best_unrounded, self.best_optimizer = state, unrounded, optimizer
        progress.best_epoch = progress.epoch
        progress.best_quality = found.values[self.task.metric.name]
        progress.best_loss = found.loss

    def report(
        self,
        found: Found,
        *,
        margin: float | None,
        term: float | None,
        stood_still_seconds: float,
    ) -> EpochReport:
        """What is said of the epoch that is over."""
        progress = self.progress
        trained = progress.epoch > 0
        return EpochReport(
            epoch=progress.epoch,
            train_loss=progress.loss_sum / progress.loss_samples if trained else None,
            validation=found.values[self.task.metric.name],
            validation_loss=found.loss,
            spectral_margin=margin,
            generalization_term=term,
            gradient_first=progress.gradient_first,
            gradient_last=progress.gradient_last,
            probes=progress.probes,
            recovered_batches=progress.recovered_batches,
            seconds=progress.seconds,
            stood_still_seconds=stood_still_seconds,
        )

    def end_epoch(self, verdict: Verdict) -> None:
        """Move to the next epoch's beginning."""
        done = self.progress
        self.verdict = verdict
        self.progress = Progress(
            epoch=done.epoch + 1,
            pass_batches=self._epoch.done,
            best_epoch=done.best_epoch,
            best_quality=done.best_quality,
            best_loss=done.best_loss,
            stale_epochs=done.stale_epochs,
            plateau_epochs=done.plateau_epochs,
            plateau_steps=done.plateau_steps,
        )
        self.order_at_epoch_start = self.order.get_state()
        goes_on = self._epoch.done > 0
        self._epoch = EpochBatches((), frozenset() if goes_on else frozenset({0}), self._epoch.done)

    def lower_rate(self) -> bool:
        """Lower the learning rate where the metric is at a plateau; whether it goes back, too."""
        plateau = self.training.plateau
        if plateau is None or not self._is_at_plateau or self._is_complete:
            return False
        self.progress.plateau_epochs = 0
        self.progress.plateau_steps += 1
        return plateau.restore

    def at_best(self, numbers: Numbers) -> Numbers:
        """What it has at the beginning of the next epoch, with parameters of the best one."""
        # Resume files of earlier versions have the rounded numbers alone.
        model = self.best_unrounded or self.best
        return replace(numbers, model=model, optimizer=self.best_optimizer)

    @property
    def is_save_due(self) -> bool:
        """Whether the state was stored long enough ago, see `pause_between_saves`."""
        now = time.monotonic()
        return now - self._saved_at >= pause_between_saves(
            self.job.checkpoint_seconds,
            trained_seconds=now - self._begun_at,
            saving_seconds=self._saving_seconds,
        )

    def save(self, numbers: Numbers) -> None:
        """Have the state stored from which training goes on."""
        begun = time.monotonic()
        state = ResumeState(
            self.progress.position(),
            model=numbers.model,
            best=self.best,
            optimizer=numbers.optimizer,
            best_optimizer=self.best_optimizer,
            best_unrounded=self.best_unrounded,
            generators={"order": self.order_at_epoch_start, **numbers.generators},
            carried={str(part): tensor for part, tensor in enumerate(numbers.carried)},
        )
        content = to_bytes(state, job=self.job)
        self.entry.hooks.save(content)
        self._saved_at = time.monotonic()
        # Training does not wait for the way to the store, but its machine has the work.
        stored_seconds = len(content) / _STORED_BYTES_PER_SECOND
        self._saving_seconds = self._saved_at - begun + stored_seconds

    def use_best(self) -> None:
        """Give the module the best epoch's numbers.

        Raises:
            ValueError: no epoch was validated.
        """
        if self.progress.best_quality is None:
            raise ValueError(f"a budget of {self.last_epoch} epochs trains nothing")
        self.module.load_state_dict(self.best)

    def result(self, test: Mapping[str, float]) -> TrainingResult:
        """What came of it; `test` is empty where it pauses."""
        quality = self.progress.best_quality
        assert quality is not None
        outcome = self.outcome
        return TrainingResult(
            module=self.module,
            outcome=outcome,
            reason=self.why_complete if outcome == "complete" else self.verdict.reason,
            quality=quality,
            test_quality=test.get(self.task.metric.name),
            test_metrics=test,
            best_epoch=self.progress.best_epoch,
            epochs_trained=self.progress.position().epochs_trained,
        )

    def _fresh(self, entry: Entry) -> Numbers:
        if entry.start is not None:
            self.module.load_state_dict(entry.start)
        seed = self.job.trial.seed
        return Numbers(self.module.state_dict(), {}, seeded(seed, self.device))

    def _restored(self, state: ResumeState) -> Numbers:
        try:
            self.module.load_state_dict(state.model)
            generators = dict(state.generators)
            self.order.set_state(generators.pop("order"))
            if "torch" not in generators:
                raise KeyError("torch")
        except (KeyError, RuntimeError) as error:
            raise CheckpointError(f"the resume file does not fit the model: {error}") from error
        self.best, self.best_unrounded = (
            {name: tensor.to(self.device) for name, tensor in one.items()}
            for one in (state.best, state.best_unrounded)
        )
        self.best_optimizer = state.best_optimizer
        self.progress = Progress(**dict(state.position))
        if self.device.type == "cuda" and "cuda" not in generators:
            generators = {**seeded(self.job.trial.seed, self.device), **generators}
        parts = sorted(state.carried, key=int)
        carried = tuple(state.carried[part].to(self.device) for part in parts)
        return Numbers(self.module.state_dict(), state.optimizer, generators, carried)


def _finite_or_none(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None
