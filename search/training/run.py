"""Training one trial: epochs, the best of them by validation, resumable at any batch."""

import math
import time
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Final, Literal, Protocol

import torch
from torch import Tensor, nn

from models.backends.loops import State
from models.errors import CheckpointError
from models.linear import cached_forms
from models.model import after_step, penalty, spectral_margin
from models.network import GradientProbe, Network, observed
from models.quantization import Bits, rounded_for_a_step, rounded_weights
from search.errors import TrainingDiverged
from search.tasks import EVALUATION_ROWS, Batch, Criterion, Samples, Splits
from search.training.distillation import Teacher
from search.training.gradients import clip_gradients, shrink_instead
from search.training.jobs import EpochReport, TrainJob, Verdict
from search.training.optimizers import decay_weights, make_optimizer, restore_state, state_of
from search.training.resume import Position, ResumeState, Tensors, from_bytes, to_bytes

_OUTCOMES: Final[Mapping[str, Literal["stopped", "paused"]]] = {
    "stop": "stopped",
    "pause": "paused",
}
"""What becomes of training that ends before its last epoch, by the verdict."""


class TrainingHooks(Protocol):
    """What training asks of whoever runs it."""

    @property
    def stood_still_seconds(self) -> float:
        """How long `batch` has waited for measurers, in all."""
        ...

    def batch(self) -> AbstractContextManager[None]:
        """Enclose the device's work on one batch, of training or of evaluation."""
        ...

    def epoch_done(self, report: EpochReport) -> Verdict:
        """Take note of an epoch, and say whether to go on."""
        ...

    def save(self, resume: bytes) -> None:
        """Keep the state from which training goes on; the newest one replaces the others."""
        ...


@dataclass(frozen=True)
class TrainingResult:
    """A trained model, with the parameters of its best epoch, rounded to its bits."""

    module: nn.Module
    outcome: Literal["complete", "stopped", "paused"]
    reason: str | None
    """Why it was stopped or paused."""
    quality: float
    """The validation metric of the best epoch."""
    test_quality: float | None
    """The test metric of the best epoch; None where training is paused, and tested when it ends."""
    test_metrics: Mapping[str, float]
    """All that the task measures on the test split, by name, of the best epoch."""
    best_epoch: int
    epochs_trained: int


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
    the data, a fresh permutation in each epoch whose last, short batch is kept. The best epoch is
    that of the best validation metric; of several, that of the lowest validation loss, for a few
    samples give but a few values of an accuracy. A trial that starts from a trained network has an
    epoch 0, in which that is validated as it is, and which may be the best. On one CPU thread a run
    that was cut off and resumed gives the same numbers as an unbroken one, bit for bit.

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
    run = _Run(job, splits, task=task, hooks=hooks, device=torch.device(device), original=original)
    if resume is not None:
        run.restore(from_bytes(resume, job=job))
    elif start is not None:
        run.module.load_state_dict(start)
    return run.to_end()


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an error says that memory ran out: on the GPU, in Python, or in torch on the CPU."""
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    # The CPU allocator raises a plain RuntimeError.
    phrases = ("can't allocate memory", "not enough memory")
    return isinstance(error, RuntimeError) and any(phrase in str(error) for phrase in phrases)


@dataclass(frozen=True)
class _Found:
    """What an evaluation gave."""

    values: Mapping[str, float]
    loss: float | None
    """The mean over its samples; None where that is no number."""


class _Run:
    """The moving parts of one training run."""

    def __init__(
        self,
        job: TrainJob,
        splits: Splits,
        *,
        task: Criterion,
        hooks: TrainingHooks,
        device: torch.device,
        original: Network | None = None,
    ) -> None:
        self.job, self.task, self.hooks, self.device = job, task, hooks, device
        self.splits = splits.to(device)
        compression = job.trial.compression
        self.position, self.last_epoch = Position(epoch=job.first_epoch), job.last_epoch
        distillation = None if compression is None else compression.distillation
        self.teacher: Teacher | None = None
        if distillation is not None:
            if original is None:
                raise ValueError("a trial that learns from its original's answers is given none")
            self.teacher = Teacher(original, distillation, device)
        self.training, seed = job.trial.training, job.trial.seed
        self.bits: Bits | None = job.trial.model.rounded_to
        self.module = job.trial.model.unrounded.build(seed=seed).to(device)
        self.optimizer = make_optimizer(self.module, self.training)
        self.first_rates = [group["lr"] for group in self.optimizer.param_groups]
        self.order = torch.Generator().manual_seed(seed)
        self.order_at_epoch_start = self.order.get_state()
        # For modules that draw while they train.
        torch.manual_seed(seed)  # pyright: ignore[reportUnknownMemberType] -- untyped
        self.best: Tensors = {}
        self.carried: State = ()
        self.saved_at = time.monotonic()

    def to_end(self) -> TrainingResult:
        """Train what is left of the budget, then test the best epoch."""
        verdict = Verdict(lease_seconds=0)
        while self.position.epoch <= self.last_epoch and verdict.verdict == "continue":
            if self.position.epoch > 0:
                self._train_epoch()
            verdict = self._end_epoch()
            self._save_if_due()
        # A verdict after the last epoch of the budget ends nothing.
        ended_early = self.position.epoch <= self.last_epoch
        outcome = _OUTCOMES[verdict.verdict] if ended_early else "complete"
        if outcome == "paused":
            self._save()
        self.module.load_state_dict(self.best)
        quality = self.position.best_quality
        if quality is None:
            raise ValueError(f"a budget of {self.last_epoch} epochs trains nothing")
        test: Mapping[str, float] = (
            {} if outcome == "paused" else self._evaluate(self.splits.test).values
        )
        return TrainingResult(
            module=self.module,
            outcome=outcome,
            reason=verdict.reason if ended_early else None,
            quality=quality,
            test_quality=test.get(self.task.metric.name),
            test_metrics=test,
            best_epoch=self.position.best_epoch,
            epochs_trained=self.position.epochs_trained,
        )

    def restore(self, state: ResumeState) -> None:
        """Go back to where a resume file was written."""
        try:
            self.module.load_state_dict(state.model)
            restore_state(self.optimizer, self.module, state.optimizer)
            self.order.set_state(state.generators["order"])
            torch.set_rng_state(state.generators["torch"])
            if "cuda" in state.generators and self.device.type == "cuda":
                torch.cuda.set_rng_state(state.generators["cuda"], self.device)
        except (KeyError, RuntimeError) as error:
            raise CheckpointError(f"the resume file does not fit the model: {error}") from error
        self.order_at_epoch_start = self.order.get_state()
        self.best = {name: tensor.to(self.device) for name, tensor in state.best.items()}
        self.position = state.position
        parts = sorted(state.carried, key=int)
        carried = tuple(state.carried[part].to(self.device) for part in parts)
        if self.teacher is not None:
            # Both models are of one architecture: their states have as many parts.
            half = len(carried) // 2
            carried, self.teacher.carried = carried[:half], carried[half:]
        self.carried = carried

    def _train_epoch(self) -> None:
        self._set_learning_rates()
        self.order_at_epoch_start = self.order.get_state()
        if self.position.batch == 0:
            self.carried = ()
            if self.teacher is not None:
                self.teacher.carried = ()
        batches = self.splits.train.batches(self.training.batch_size, self.order)
        self.module.train()
        clock = _Stopwatch(self.hooks)
        before = self.position.seconds
        for named in batches[self.position.batch :]:
            after = self._step(named, last=self.position.batch + 1 == len(batches))
            self.position = after.model_copy(update={"seconds": before + clock.seconds()})
            self._save_if_due()

    def _step(self, named: Tensor, *, last: bool) -> Position:
        with self.hooks.batch():
            batch = self.splits.train.take(named)
            self.optimizer.zero_grad(set_to_none=True)
            # One batch of an epoch is enough to see by, and costs the others nothing.
            watched = observed(self.module) if last else nullcontext(GradientProbe())
            with rounded_for_a_step(self.module, self._bits_of_steps()), watched as probe:
                output, carried = self._answer(self.splits.train, batch, self.carried)
                loss = self.task.loss(output, batch.y)
                wanted = loss if self.teacher is None else self._taught(output, batch, loss)
                own = penalty(self.module)
                total = wanted if own is None else wanted + own
                finite = self._is_finite(total.item(), what="the loss")
                if finite:
                    total.backward()  # pyright: ignore[reportUnknownMemberType] -- untyped
                    norm = clip_gradients(self.module, self.training)
                    finite = self._is_finite(norm, what="the gradient's norm")
            if not finite and self.training.nan_recovery is not None:
                shrink_instead(self.module, self.training.nan_recovery)
            decay_weights(self.optimizer, self.training.weight_decay)
            self.optimizer.step()  # pyright: ignore[reportUnknownMemberType] -- untyped
            after_step(self.module)
            self.carried = tuple(part.detach() for part in carried)
            _settle(self.device)
            return self.position.after_batch(
                loss=loss.item(),
                samples=batch.counts,
                recovered=not finite,
                gradient_first=probe.first,
                gradient_last=probe.last,
            )

    def _end_epoch(self) -> Verdict:
        """Validate, report, and move the position to the next epoch's beginning."""
        position = self.position
        if position.epoch > 0 and position.recovered_batches == position.batch:
            raise TrainingDiverged(
                f"epoch {position.epoch}: the loss or the gradient's norm of all {position.batch} "
                f"batches is NaN or Inf, with nan_recovery {self.training.nan_recovery}"
            )
        clock = _Stopwatch(self.hooks)
        best, best_loss, best_epoch = position.best_quality, position.best_loss, position.best_epoch
        with rounded_weights(self.module, self.bits):
            found = self._evaluate(self.splits.validation)
            quality = found.values[self.task.metric.name]
            if best is None or self._is_better(quality, found.loss, best, best_loss):
                self.best = _copy(self.module.state_dict())
                best, best_loss, best_epoch = quality, found.loss, position.epoch
            margin = spectral_margin(self.module)
        verdict = self.hooks.epoch_done(
            EpochReport(
                epoch=position.epoch,
                train_loss=(
                    position.loss_sum / position.loss_samples if position.epoch > 0 else None
                ),
                validation=quality,
                spectral_margin=margin,
                gradient_first=position.gradient_first,
                gradient_last=position.gradient_last,
                recovered_batches=position.recovered_batches,
                seconds=position.seconds + clock.seconds(),
                stood_still_seconds=self.hooks.stood_still_seconds,
            )
        )
        self.position = Position(
            epoch=position.epoch + 1,
            best_epoch=best_epoch,
            best_quality=best,
            best_loss=best_loss,
        )
        self.order_at_epoch_start = self.order.get_state()
        return verdict

    def _bits_of_steps(self) -> Bits | None:
        """What weights are rounded to in the steps of the epoch underway."""
        first = self.last_epoch - self.training.quantised_epochs + 1
        return self.bits if self.position.epoch >= first else None

    def _taught(self, output: Tensor, batch: Batch, loss: Tensor) -> Tensor:
        """The loss with the distance from the original's answers."""
        assert self.teacher is not None
        carries_state = self.splits.train.carries_state
        return self.teacher.loss(output, batch, loss, task=self.task, carries_state=carries_state)

    def _answer(self, samples: Samples, batch: Batch, carried: State) -> tuple[Tensor, State]:
        """The model's output, and the state in which it ended where the samples carry it on."""
        if not samples.carries_state:
            return self.module(batch.x, lengths=batch.lengths), ()
        return self.module.step(batch.x, carried)

    @torch.no_grad()
    def _evaluate(self, samples: Samples) -> _Found:
        """All metrics of a split, and its loss."""
        self.module.eval()
        meter, carried = self.task.meter(), ()
        loss, counts = 0.0, 0
        with cached_forms(self.module):
            for named in samples.batches(EVALUATION_ROWS, None):
                with self.hooks.batch():
                    batch = samples.take(named)
                    output, carried = self._answer(samples, batch, carried)
                    self._refuse_not_finite(output)
                    meter.add(output, batch.y)
                    loss += self.task.loss(output, batch.y).item() * batch.counts
                    counts += batch.counts
                    _settle(self.device)
        values = dict(meter.values())
        quality = values[self.task.metric.name]
        if not math.isfinite(quality):
            raise TrainingDiverged(
                f"epoch {self.position.epoch}: {self.task.metric.name} "
                f"on held-out samples is {quality}"
            )
        return _Found(values, loss / counts if math.isfinite(loss) else None)

    def _is_better(
        self, quality: float, loss: float | None, best: float, best_loss: float | None
    ) -> bool:
        if quality != best:
            return self.task.metric.is_better(quality, best)
        return loss is not None and (best_loss is None or loss < best_loss)

    def _refuse_not_finite(self, output: Tensor) -> None:
        finite = torch.isfinite(output)
        if not finite.all():
            raise TrainingDiverged(
                f"epoch {self.position.epoch}: {int((~finite).sum())} of {output.numel()} "
                f"predictions of a batch of held-out samples are NaN or Inf"
            )

    def _is_finite(self, value: float, *, what: str) -> bool:
        """Whether it is; where it is not and training knows no way on, this is the end."""
        if math.isfinite(value):
            return True
        if self.training.nan_recovery is None:
            raise TrainingDiverged(
                f"epoch {self.position.epoch}, batch {self.position.batch + 1}: {what} is {value}"
            )
        return False

    def _set_learning_rates(self) -> None:
        factor = self.training.decay ** (self.position.epoch - 1)
        for group, first in zip(self.optimizer.param_groups, self.first_rates, strict=True):
            group["lr"] = first * factor

    def _save_if_due(self) -> None:
        if time.monotonic() - self.saved_at >= self.job.checkpoint_seconds:
            self._save()

    def _save(self) -> None:
        self.saved_at = time.monotonic()
        self.hooks.save(to_bytes(self._state(), job=self.job))

    def _state(self) -> ResumeState:
        generators = {"order": self.order_at_epoch_start, "torch": torch.get_rng_state()}
        if self.device.type == "cuda":
            generators["cuda"] = torch.cuda.get_rng_state(self.device)
        return ResumeState(
            self.position,
            model=self.module.state_dict(),
            best=self.best,
            optimizer=state_of(self.optimizer, self.module),
            generators=generators,
            carried={
                str(part): tensor
                for part, tensor in enumerate(
                    self.carried if self.teacher is None else self.carried + self.teacher.carried
                )
            },
        )


class _Stopwatch:
    """Seconds since it was made, without those in which the run stood still for a measurer."""

    def __init__(self, hooks: TrainingHooks) -> None:
        self._hooks = hooks
        self._started = self._now()

    def seconds(self) -> float:
        return max(0.0, self._now() - self._started)

    def _now(self) -> float:
        return time.monotonic() - self._hooks.stood_still_seconds


def _settle(device: torch.device) -> None:
    """Wait for the device: what it still computes after a batch would disturb a measurer."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _copy(state: dict[str, Tensor]) -> Tensors:
    return {name: tensor.detach().clone() for name, tensor in state.items()}
