"""Gradients of single updates: which ones, what they are, and over a kill and in a stack."""

import signal
from pathlib import Path
from typing import Any

import pytest

from search.documents.gradients import ProbedGradient
from search.tasks import Split, Splits
from search.training.jobs import EpochReport
from search.training.run import train
from search.training.stacks import Entry
from search.training.trial_spec import TrainingSpec
from tests.search.forked import in_new_process
from tests.search.killed_training import run
from tests.search.training.stacks.stack_cases import Told, together
from tests.search.training_cases import TASK, RecordingHooks, load_splits, make_job


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cache")
    load_splits(folder)
    return folder


@pytest.fixture(scope="module")
def splits(cache: Path) -> Splits[Split]:
    return load_splits(cache)


def training_of(every: int | None, **fields: Any) -> TrainingSpec:
    return TrainingSpec(learning_rate=0.01, batch_size=64, probe_every=every, **fields)


def reports_of(splits: Splits[Split], every: int | None, **fields: Any) -> list[EpochReport]:
    hooks = RecordingHooks()
    train(make_job(training=training_of(every, **fields)), splits, task=TASK, hooks=hooks)
    return hooks.reports


@pytest.mark.parametrize("every", [1, 2, 3, 5, 12, 13])
def test_updates_are_counted_over_epochs(splits: Splits[Split], every: int) -> None:
    # Three epochs of four batches.
    found = [[probe.update for probe in one.probes] for one in reports_of(splits, every)]
    wanted = [update for update in range(1, 13) if update % every == 0]
    assert found == [[one for one in wanted if (one - 1) // 4 == epoch] for epoch in range(3)]


def test_rows_are_the_gradients_that_reports_have_of_an_epochs_last_update(
    splits: Splits[Split],
) -> None:
    """Epochs of one update tell of each; passes of four batches are the same with them."""
    rows = [probe for report in reports_of(splits, 1) for probe in report.probes]
    job = make_job(training=training_of(None, epoch_updates=1), epochs=12)
    hooks = RecordingHooks()
    train(job, splits, task=TASK, hooks=hooks)
    assert rows == [
        ProbedGradient(update=one.epoch, first=one.gradient_first, last=one.gradient_last)
        for one in hooks.reports
    ]
    assert all(row.first is not None and row.first > 0 for row in rows)


def test_watching_changes_no_number(splits: Splits[Split]) -> None:
    watched, usual = reports_of(splits, 1), reports_of(splits, None)
    for one, other in zip(watched, usual, strict=True):
        assert one.model_copy(update={"probes": (), "seconds": 0.0}) == other.model_copy(
            update={"seconds": 0.0}
        )
        assert "probes" not in other.model_dump(mode="json")


def test_killed_and_resumed_equals_unbroken(cache: Path, tmp_path: Path) -> None:
    job = make_job(epochs=2, checkpoint_seconds=0, training=training_of(3))
    unbroken, _ = in_new_process(run, job, cache, tmp_path / "unbroken", None)
    file = tmp_path / "resume"
    lost, code = in_new_process(run, job, cache, file, 3)
    assert (lost, code) == (None, -signal.SIGKILL)
    resumed, _ = in_new_process(run, job, cache, file, None)
    assert resumed["curve"] == unbroken["curve"]
    assert [probe["update"] for probe in resumed["curve"][1]["probes"]] == [3]


def test_members_of_a_stack_tell_of_their_own_updates(splits: Splits[Split]) -> None:
    entries = [
        Entry(make_job(seed=seed, training=training_of(every)), Told())
        for seed, every in enumerate((2, None, 3))
    ]
    found = [
        [probe.update for report in one.reports for probe in report.probes]
        for one in together(entries, splits)
    ]
    assert found == [[2, 4, 6, 8, 10, 12], [], [3, 6, 9, 12]]
