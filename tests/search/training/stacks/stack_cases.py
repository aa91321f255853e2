"""Hooks of stacks, and what the same trials come to one by one."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from torch import Tensor

from search.tasks import Splits
from search.training.jobs import EpochReport, TrainJob, Verdict
from search.training.run import TrainingResult, train
from search.training.stacks import Entry, train_stack
from search.training.stacks.widths import WidthPolicy
from tests.search.training_cases import RecordingHooks


@dataclass
class Told(RecordingHooks):
    """What one member says, and how it ends."""

    verdicts: Mapping[int, Verdict] = field(default_factory=dict[int, Verdict])
    result: TrainingResult | Exception | None = None

    def __post_init__(self) -> None:
        super().__init__()

    def epoch_done(self, report: EpochReport) -> Verdict:
        super().epoch_done(report)
        return self.verdicts.get(report.epoch, Verdict(lease_seconds=1))

    leaves = False

    def say_epoch(self, report: EpochReport) -> None:
        self._verdict = self.epoch_done(report)

    def hear_verdict(self) -> Verdict:
        return self._verdict

    @property
    def outcome(self) -> TrainingResult:
        assert isinstance(self.result, TrainingResult), self.result
        return self.result


class Hooks:
    """The hooks of a stack whose members are all there, or come at a time."""

    def __init__(self, *entries: Entry, later: Mapping[int, Sequence[Entry]] | None = None) -> None:
        """`later` come when newcomers are asked for the n-th time, counted from 0."""
        self.stood_still_seconds = 0.0
        self.batches = self._asked = 0
        self._later = {0: entries, **(later or {})}

    @contextmanager
    def batch(self) -> Iterator[None]:
        self.batches += 1
        yield

    def newcomers(self) -> Sequence[Entry]:
        asked, self._asked = self._asked, self._asked + 1
        return self._later.get(asked, ())

    def ended(self, entry: Entry, result: TrainingResult | Exception) -> None:
        hooks = entry.hooks
        assert isinstance(hooks, Told)
        assert hooks.result is None, "told once"
        hooks.result = result


def told(*jobs: TrainJob) -> list[Entry]:
    return [Entry(job, Told()) for job in jobs]


def told_of(entry: Entry) -> Told:
    assert isinstance(entry.hooks, Told)
    return entry.hooks


def together(
    entries: Sequence[Entry], splits: Splits, *, width: WidthPolicy = 99, **hooks: Any
) -> list[Told]:
    """Train members in one stack."""
    task = entries[0].job.task
    train_stack(splits, task=task, hooks=Hooks(*entries, **hooks), width=width)
    return [told_of(entry) for entry in entries]


def alone(entry: Entry, splits: Splits) -> Told:
    """Train the same trial by itself."""
    hooks = Told(told_of(entry).verdicts)
    try:
        hooks.result = train(
            entry.job,
            splits,
            task=entry.job.task,
            hooks=hooks,
            resume=entry.resume,
            start=entry.start,
            original=entry.original,
        )
    except Exception as error:
        hooks.result = error
    return hooks


def assert_same(found: Told, wanted: Told, *, bound: float = 2e-4) -> None:
    """Results and reports are equal; numbers up to `bound` of the largest in their tensor."""
    one, other = found.result, wanted.result
    if isinstance(other, Exception) or isinstance(one, Exception):
        assert (type(one), str(one)) == (type(other), str(other))
        return
    assert one is not None
    assert other is not None
    assert (one.outcome, one.reason, one.epochs_trained) == (
        other.outcome,
        other.reason,
        other.epochs_trained,
    )
    assert len(found.reports) == len(wanted.reports)
    for mine, theirs in zip(found.reports, wanted.reports, strict=True):
        for name in ("train_loss", "spectral_margin", "gradient_first", "gradient_last"):
            near = getattr(theirs, name)
            near = near if near is None else pytest.approx(near, rel=20 * bound, abs=20 * bound)
            assert getattr(mine, name) == near, name
        assert mine.validation == pytest.approx(theirs.validation, rel=bound, abs=1e-9)
        assert (mine.epoch, mine.recovered_batches) == (theirs.epoch, theirs.recovered_batches)
    assert one.best_epoch == other.best_epoch
    assert one.test_metrics == pytest.approx(other.test_metrics, rel=bound, abs=1e-9)
    close(one.module.state_dict(), other.module.state_dict(), bound=bound)


def close(found: Mapping[str, Tensor], wanted: Mapping[str, Tensor], *, bound: float) -> None:
    assert found.keys() == wanted.keys()
    for name, tensor in wanted.items():
        largest = float(tensor.abs().max()) if tensor.numel() else 0.0
        torch.testing.assert_close(
            found[name],
            tensor,
            rtol=0,
            atol=bound * max(1.0, largest),
            msg=f"{name} differs",
        )
