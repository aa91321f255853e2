"""What training is given of a trial, what it asks of its caller, and what comes of it."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Literal, Protocol

from torch import Tensor, nn

from models.network import Network
from search.training.jobs import EpochReport, TrainJob, Verdict


class MemberHooks(Protocol):
    """What a trial asks of its caller; what any of them raises ends this trial alone."""

    @property
    def leaves(self) -> bool:
        """Whether it is to store its state at the next batch and end, as `Left`."""
        ...

    def say_epoch(self, report: EpochReport) -> None:
        """Take note of an epoch.

        All whose epochs are over say so before one hears what to do: the answer is made for
        all at once.
        """
        ...

    def hear_verdict(self) -> Verdict:
        """Say whether to go on after the epoch of which note was taken last."""
        ...

    def save(self, resume: bytes) -> None:
        """Keep the state from which training goes on; the newest one replaces the others."""
        ...


class Clock(Protocol):
    """Who lends the device, and knows how long nothing was computed on it."""

    @property
    def stood_still_seconds(self) -> float:
        """How long `batch` has waited for measurers, in all."""
        ...

    def batch(self) -> AbstractContextManager[None]:
        """Enclose the device's work on one batch, of training or of evaluation.

        What it raises ends training as a whole, for all trials, and none is reported.
        """
        ...


@dataclass(frozen=True)
class Entry:
    """A trial that is to be trained."""

    job: TrainJob
    hooks: MemberHooks
    resume: bytes | None = None
    """The newest resume file of the same trial; None starts anew."""
    start: Mapping[str, Tensor] | None = None
    """The module's state to start anew from, in place of the seed's initialisation."""
    original: Network | None = None
    """What the trial learns from besides, where its spec says that it does."""


class Left(Exception):
    """The trial was to leave, and its state is stored: it may go on from there elsewhere."""


@dataclass(frozen=True)
class TrainingResult:
    """A trained model, with the parameters of its best epoch, rounded to its bits."""

    module: nn.Module
    outcome: Literal["complete", "stopped", "paused"]
    reason: str | None
    """Why it was stopped or paused, or is complete before its budget's last epoch."""
    quality: float
    """The validation metric of the best epoch."""
    test_quality: float | None
    """The test metric of the best epoch; None where training is paused, and tested when it ends."""
    test_metrics: Mapping[str, float]
    """All that the task measures on the test split, by name, of the best epoch."""
    best_epoch: int
    epochs_trained: int


class StackHooks(Clock, Protocol):
    """What trials that are trained together ask of their caller."""

    def newcomers(self) -> Sequence[Entry]:
        """Trials that came since it was last asked; it is asked where they may join."""
        ...

    def ended(self, entry: Entry, result: TrainingResult | Exception) -> None:
        """Take what came of a trial, once for each; it takes no time from then on."""
        ...
