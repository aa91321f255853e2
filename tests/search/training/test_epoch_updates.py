"""Epochs of so many updates: the order of the samples runs on over passes, and over a kill."""

import itertools
import signal
from pathlib import Path

import pytest
import torch
from torch import nn

from models.architectures import Rnn
from models.model import ModelSpec, after_step
from models.parametrizations import Dense
from search.tasks import DataSources, Language, Split, Splits
from search.training.jobs import TrainJob
from search.training.run import train
from search.training.stacks import stack_key
from search.training.stacks.passes import draw_epoch
from search.training.trial_spec import TrainingSpec, TrialSpec
from tests.search.forked import in_new_process
from tests.search.killed_training import run
from tests.search.training_cases import TASK, RecordingHooks, load_splits, make_job

UPDATES = 7
TRAINING = TrainingSpec(learning_rate=0.01, batch_size=48, decay=0.5, epoch_updates=UPDATES)


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cache")
    load_splits(folder)
    return folder


@pytest.fixture(scope="module")
def splits(cache: Path) -> Splits[Split]:
    return load_splits(cache)


def stream(splits: Splits[Split], seed: int, batches: int) -> list[torch.Tensor]:
    """Batches of one permutation behind the other."""
    order, found = torch.Generator().manual_seed(seed), list[torch.Tensor]()
    while len(found) < batches:
        found += torch.split(torch.randperm(len(splits.train), generator=order), 48)
    return found[:batches]


def test_epochs_are_what_a_plain_loop_over_one_stream_of_batches_does(
    splits: Splits[Split],
) -> None:
    job = make_job(training=TRAINING)
    hooks = RecordingHooks()
    train(job, splits, task=TASK, hooks=hooks)
    module = job.trial.model.build(seed=job.trial.seed)
    optimizer = torch.optim.Adam(module.parameters(), lr=TRAINING.learning_rate)
    losses: list[float] = []
    for update, rows in enumerate(stream(splits, job.trial.seed, 3 * UPDATES)):
        optimizer.param_groups[0]["lr"] = TRAINING.learning_rate * 0.5 ** (update // UPDATES)
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(module(splits.train.x[rows]), splits.train.y[rows])
        loss.backward()
        nn.utils.clip_grad_norm_(module.parameters(), 1.0)
        optimizer.step()
        after_step(module)
        losses += [loss.item()] * len(rows)
    # Passes of 200 samples in five batches: the epochs have 296, 296 and 248 + 48 samples.
    ends = [sum(len(rows) for rows in stream(splits, 7, n * UPDATES)) for n in range(4)]
    means = [sum(losses[a:b]) / (b - a) for a, b in itertools.pairwise(ends)]
    assert [report.train_loss for report in hooks.reports] == pytest.approx(means, rel=1e-6)
    assert [report.epoch for report in hooks.reports] == [1, 2, 3]


@pytest.mark.parametrize("updates", [1, 2, 5, 7, 10, 23])
def test_no_batch_is_lost_or_repeated(splits: Splits[Split], updates: int) -> None:
    order, done, found = torch.Generator().manual_seed(3), 0, list[torch.Tensor]()
    starts: list[int] = []
    for epoch in range(6):
        drawn = draw_epoch(splits.train, 48, order, updates=updates, done=done)
        assert len(drawn.batches) == updates
        starts += [epoch * updates + start for start in sorted(drawn.starts)]
        found += drawn.batches
        done = drawn.done
    wanted = stream(splits, 3, 6 * updates)
    assert all(torch.equal(one, other) for one, other in zip(found, wanted, strict=True))
    # 200 samples are five batches.
    assert starts == [place for place in range(6 * updates) if place % 5 == 0]


def test_killed_and_resumed_equals_unbroken_bit_for_bit(cache: Path, tmp_path: Path) -> None:
    job = make_job(epochs=2, checkpoint_seconds=0, training=TRAINING)
    unbroken, code = in_new_process(run, job, cache, tmp_path / "unbroken", None)
    assert code == 0
    # At the end of the first pass, of the first epoch, and behind that of the second pass.
    for kill_after in (5, 8, 12):
        file = tmp_path / f"resume-{kill_after}"
        lost, code = in_new_process(run, job, cache, file, kill_after)
        assert (lost, code) == (None, -signal.SIGKILL)
        resumed, code = in_new_process(run, job, cache, file, None)
        assert code == 0
        assert resumed["checkpoint"] == unbroken["checkpoint"]
        assert resumed["best"] == unbroken["best"]
        for epoch, numbers in resumed["curve"].items():
            assert numbers == unbroken["curve"][epoch]


def text_job(folder: Path, updates: int | None) -> tuple[TrainJob, DataSources]:
    """A text that is read on from batch to batch, in passes of three batches."""
    folder.mkdir(exist_ok=True)
    letters = [chr(97 + (7 * place * place + place // 5) % 26) for place in range(240)]
    lines = "\n".join("".join(letters[start : start + 40]) for start in range(0, 240, 40))
    for split in ("train", "valid", "test"):
        (folder / f"text.{split}.txt").write_text(f"{lines}\n")
    sources = DataSources(cache=folder / "cache", folder=folder)
    task = Language(corpus="file", file="text.txt", window=16).resolved(sources)
    model = ModelSpec(
        architecture=Rnn(hidden_size=8), parametrization=Dense(), signature=task.signature()
    )
    training = TrainingSpec(learning_rate=0.01, batch_size=4, epoch_updates=updates)
    trial = TrialSpec(model=model, training=training, seed=1)
    job = TrainJob(task=task, trial=trial, number=0, epochs=4, checkpoint_seconds=1e9)
    return job, sources


def test_a_state_is_carried_over_epochs_and_forgotten_at_passes(tmp_path: Path) -> None:
    losses: dict[int | None, list[float]] = {}
    for updates in (None, 2):
        job, sources = text_job(tmp_path / "text", updates)
        splits = job.task.load(sources)
        passes = len(splits.train.batches(4, torch.Generator()))
        assert passes == 4
        job = job.model_copy(update={"epochs": 2 if updates is None else 4})
        hooks = RecordingHooks()
        train(job, splits, task=job.task, hooks=hooks)
        losses[updates] = [report.train_loss or 0 for report in hooks.reports]
    halves = losses[2]
    # Windows count alike but for the last, so that sums of two epochs are those of a pass.
    counts = [job.task.load(sources).train.take(b).counts for b in splits.train.batches(4, None)]
    first, second = sum(counts[:2]), sum(counts[2:])
    wholes = [(halves[n] * first + halves[n + 1] * second) / (first + second) for n in (0, 2)]
    assert wholes == pytest.approx(losses[None], rel=1e-6)


def test_such_trials_are_trained_alone() -> None:
    one, other = (make_job(training=TRAINING, seed=seed) for seed in (1, 2))
    assert stack_key(one) != stack_key(other)
    assert stack_key(make_job(seed=1)) == stack_key(make_job(seed=2))


def test_documents_of_trials_without_it_are_what_they_were() -> None:
    assert "epoch_updates" not in TrainingSpec().model_dump(mode="json")
    assert TRAINING.model_dump(mode="json")["epoch_updates"] == UPDATES
