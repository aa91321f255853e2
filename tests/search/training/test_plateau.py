"""Rates that fall when validation gets no better, and trials that then are complete."""

import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from models.model import after_step
from search.errors import ReportRefused
from search.running.attempt_checks import check_training
from search.tasks import Split, Splits
from search.training.jobs import Completion
from search.training.run import train
from search.training.stacks import Entry, train_stack
from search.training.trial_spec import Plateau, TrainingSpec
from tests.search.forked import in_new_process
from tests.search.killed_training import run
from tests.search.training.stacks.stack_cases import (
    Hooks,
    Told,
    alone,
    assert_same,
    together,
    told,
    told_of,
)
from tests.search.training_cases import (
    RecordingHooks,
    Scripted,
    load_splits,
    make_job,
    with_bits,
)

QUALITIES = [0.2, 0.4, 0.3, 0.4, 0.5, 0.1, 0.1, 0.2, 0.2]
"""The best epochs are 2 and 5: with two stale ones the rate falls after 4, 7 and 9."""


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cache")
    load_splits(folder)
    return folder


@pytest.fixture(scope="module")
def splits(cache: Path) -> Splits[Split]:
    return load_splits(cache)


def training_of(**fields: Any) -> TrainingSpec:
    return TrainingSpec.model_validate({"learning_rate": 0.01, "batch_size": 64, **fields})


def plain_losses(splits: Splits[Split], *, restore: bool) -> list[float]:
    """Training losses of the same by torch alone, with the rates written down epoch by epoch."""
    job = make_job()
    module = job.trial.model.build(seed=job.trial.seed)
    optimizer = torch.optim.Adam(module.parameters())
    order = torch.Generator().manual_seed(job.trial.seed)
    losses: list[float] = []
    kept: dict[str, Any] = {}
    rates = [0.01] * 4 + [0.0025] * 3 + [0.000625] * 2
    for epoch, rate in enumerate(rates, start=1):
        if restore and epoch in (5, 8):
            module.load_state_dict(kept["model"])
            optimizer.load_state_dict(kept["optimizer"])
        optimizer.param_groups[0]["lr"] = rate
        total = 0.0
        for rows in torch.split(torch.randperm(len(splits.train), generator=order), 64):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(module(splits.train.x[rows]), splits.train.y[rows])
            loss.backward()
            nn.utils.clip_grad_norm_(module.parameters(), 1.0)
            optimizer.step()
            after_step(module)
            total += loss.item() * len(rows)
        losses.append(total / len(splits.train))
        if epoch in (2, 5):
            states: dict[str, Any] = {"model": module, "optimizer": optimizer}
            kept = {
                name: {key: _copied(value) for key, value in one.state_dict().items()}
                for name, one in states.items()
            }
    return losses


def _copied(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.detach().clone()
    if isinstance(value, dict):
        return {key: _copied(one) for key, one in value.items()}
    return value


@pytest.mark.parametrize("restore", [True, False])
def test_the_rate_falls_and_the_best_epoch_is_gone_on_from(
    splits: Splits[Split], *, restore: bool
) -> None:
    plateau = Plateau(factor=0.25, stale=2, restore=restore)
    job = make_job(epochs=9, training=training_of(plateau=plateau))
    hooks = RecordingHooks()
    # Ties have worse losses: epoch 4 is not the best one.
    task = Scripted(*QUALITIES, 0.6, losses={4: 2.0})
    result = train(job, splits, task=task, hooks=hooks)
    found = [report.train_loss for report in hooks.reports]
    assert found == pytest.approx(plain_losses(splits, restore=restore), rel=1e-5)
    assert (result.outcome, result.reason, result.best_epoch) == ("complete", None, 5)


@pytest.mark.parametrize("members", [1, 2])
def test_what_is_gone_on_from_was_not_rounded(splits: Splits[Split], members: int) -> None:
    """With few bits too: the best is validated and kept rounded, and training knows nothing."""
    curves: dict[int, list[list[float | None]]] = {}
    for bits in (4, 32):
        training = training_of(plateau=Plateau(stale=1), quantised_epochs=0)
        jobs = [make_job(epochs=6, seed=seed, training=training) for seed in range(members)]
        entries = told(*(with_bits(job, bits) for job in jobs))
        each = [0.2, 0.5, 0.4, 0.3, 0.6, 0.1, 0.6]
        task = Scripted(*(quality for quality in each for _ in range(members)))
        train_stack(splits, task=task, hooks=Hooks(*entries), width=members)
        curves[bits] = [
            [report.train_loss for report in told_of(entry).reports] for entry in entries
        ]
        assert all(told_of(entry).outcome.best_epoch == 5 for entry in entries)
    assert curves[4] == curves[32]


@pytest.mark.parametrize(
    ("fields", "epochs", "reason"),
    [
        (
            {"plateau": {"stale": 2, "most": 1}},
            7,
            "no better score in 2 epochs, with its learning rate lowered 1 times",
        ),
        ({"plateau": {"stale": 2, "most": 0}}, 4, "no better score in 2 epochs, with"),
        ({"patience": 2}, 4, "no better score in 2 epochs, which is its patience"),
        ({"patience": 4}, 9, "no better score in 4 epochs, which is its patience"),
        ({"patience": 3, "plateau": {"stale": 2}}, 8, "no better score in 3 epochs, which is"),
    ],
)
def test_a_trial_is_complete_when_there_is_no_more_to_hope(
    splits: Splits[Split], fields: dict[str, Any], epochs: int, reason: str
) -> None:
    job = make_job(epochs=20, training=training_of(**fields))
    hooks = RecordingHooks()
    task = Scripted(*QUALITIES[:epochs], 0.6, losses={4: 2.0})
    result = train(job, splits, task=task, hooks=hooks)
    assert (result.outcome, result.epochs_trained) == ("complete", epochs)
    assert len(hooks.reports) == epochs
    assert result.reason is not None
    assert result.reason.startswith(reason)
    assert result.test_quality == 0.6


def test_where_validation_chooses_nothing_the_last_epoch_is_kept(splits: Splits[Split]) -> None:
    unchosen = replace(splits, chooses=False)
    hooks = RecordingHooks()
    task = Scripted(0.5, 0.4, 0.3, 0.6)
    result = train(make_job(), unchosen, task=task, hooks=hooks)
    assert (result.best_epoch, result.quality, result.test_quality) == (3, 0.3, 0.6)
    chosen = train(make_job(), splits, task=Scripted(0.5, 0.4, 0.3, 0.6), hooks=RecordingHooks())
    assert chosen.best_epoch == 1


def test_a_metric_that_falls_is_better(splits: Splits[Split]) -> None:
    job = make_job(epochs=20, training=training_of(patience=2))
    task = Scripted(0.5, 0.4, 0.3, 0.3, 0.35, 0.2, direction="minimize")
    result = train(job, splits, task=task, hooks=RecordingHooks())
    assert (result.epochs_trained, result.quality) == (5, 0.3)


LIVELY = training_of(
    learning_rate=0.05, plateau={"stale": 1, "most": 4}, patience=4, epoch_updates=3
)


@pytest.mark.parametrize("bits", [32, 8])
def test_killed_and_resumed_equals_unbroken_bit_for_bit(
    bits: int, cache: Path, tmp_path: Path
) -> None:
    job = with_bits(make_job(epochs=30, checkpoint_seconds=0, training=LIVELY), bits)
    unbroken, code = in_new_process(run, job, cache, tmp_path / "unbroken", None)
    assert code == 0
    last = max(unbroken["curve"])
    assert (unbroken["outcome"], last < 30) == ("complete", True)
    best = unbroken["best"][2]
    # Right where the rate falls first, in the epoch behind, and at the very end.
    for kill_after in (4 * best, 4 * (best + 1), 4 * (best + 1) + 1, 4 * last):
        file = tmp_path / f"resume-{kill_after}"
        lost, code = in_new_process(run, job, cache, file, kill_after)
        assert (lost, code) == (None, -signal.SIGKILL)
        resumed, code = in_new_process(run, job, cache, file, None)
        assert code == 0
        assert resumed["checkpoint"] == unbroken["checkpoint"]
        assert resumed["best"] == unbroken["best"]
        for epoch, numbers in resumed["curve"].items():
            assert numbers == unbroken["curve"][epoch]


def test_trials_trained_together_lower_their_own_rates(splits: Splits[Split]) -> None:
    entries = [
        Entry(make_job("rnn-householder_svd", epochs=6, seed=seed, training=training), Told())
        for seed, training in enumerate(
            (
                training_of(learning_rate=0.03, plateau=Plateau(factor=0.3, stale=1)),
                training_of(learning_rate=0.02, plateau=Plateau(stale=1, most=1)),
                training_of(learning_rate=0.05, patience=1),
                training_of(),
            )
        )
    ]
    for found, entry in zip(together(entries, splits), entries, strict=True):
        assert_same(found, alone(entry, splits), bound=2e-3)


def completion(**changes: Any) -> Completion:
    return Completion.model_validate(
        {
            "outcome": "complete",
            "quality": 0.5,
            "test_quality": 0.5,
            "test_metrics": {"accuracy": 0.5},
            "best_epoch": 1,
            "epochs_trained": 2,
            **changes,
        }
    )


def test_fewer_epochs_than_the_budget_are_complete_where_patience_may_say_so() -> None:
    curve = {1: 0.5, 2: 0.4}
    check_training(completion(), make_job(training=training_of(patience=1)), curve)
    with pytest.raises(ReportRefused, match="2 is not the budget of a complete trial"):
        check_training(completion(), make_job(), curve)


@pytest.mark.parametrize(
    ("field", "value"), [("factor", 1.0), ("factor", 0.0), ("stale", 0), ("most", -1)]
)
def test_values_that_mean_nothing_are_refused(field: str, value: float) -> None:
    with pytest.raises(ValueError, match=field):
        Plateau.model_validate({field: value})
