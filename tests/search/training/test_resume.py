"""A run that was killed and went on equals an unbroken one, bit for bit, in new processes."""

import signal
from dataclasses import replace
from io import BytesIO
from pathlib import Path

import pytest
import torch

from models.architectures import Rnn
from models.checkpoint import save_bytes
from models.errors import CheckpointError
from models.model import ModelSpec
from search.errors import ReportRefused
from search.running.artifact_checks import check_artifact
from search.training.jobs import TrainJob
from search.training.resume import Position, ResumeState, from_bytes, to_bytes
from search.training.run import train
from search.training.trial_spec import OptimizerName, Plateau, TrainingSpec
from tests.search.forked import in_new_process
from tests.search.killed_training import run
from tests.search.training_cases import (
    TASK,
    RecordingHooks,
    Scripted,
    load_splits,
    make_job,
    make_overflowing_job,
    with_bits,
)

EPOCHS = 3
BATCHES = 4  # 200 samples, 64 at a time
SAVES = EPOCHS * (BATCHES + 1)  # after every batch, and after every epoch
DECAYING = TrainingSpec(learning_rate=0.01, batch_size=64, decay=0.7, weight_decay=0.01)


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cache")
    load_splits(folder)
    return folder


@pytest.mark.parametrize("model", ["rnn-householder_svd", "gru-low_rank_diagonal"])
def test_killed_and_resumed_in_a_new_process_equals_unbroken_bit_for_bit(
    model: str, cache: Path, tmp_path: Path
) -> None:
    job = make_job(model, epochs=EPOCHS, checkpoint_seconds=0, training=DECAYING)
    unbroken, code = in_new_process(run, job, cache, tmp_path / "unbroken", None)
    assert code == 0
    assert unbroken["best"][3] == EPOCHS
    for kill_after in range(1, SAVES + 1):
        file = tmp_path / f"resume-{kill_after}"
        lost, code = in_new_process(run, job, cache, file, kill_after)
        assert (lost, code) == (None, -signal.SIGKILL)
        resumed, code = in_new_process(run, job, cache, file, None)
        assert code == 0
        epochs_over = from_bytes(file.read_bytes(), job=job).position.epochs_trained
        assert epochs_over == EPOCHS
        assert resumed["checkpoint"] == unbroken["checkpoint"]
        assert resumed["best"] == unbroken["best"]
        for epoch, numbers in resumed["curve"].items():
            assert numbers == unbroken["curve"][epoch]
        # The epoch underway when the process was killed is reported by the one that went on.
        assert min(resumed["curve"], default=EPOCHS + 1) == (kill_after // (BATCHES + 1)) + 1


def rnn_with(optimizer: OptimizerName) -> TrainJob:
    training = TrainingSpec(
        optimizer=optimizer, learning_rate=0.01, decay=0.7, weight_decay=0.01, clip_value=0.05
    )
    return make_job(epochs=2, checkpoint_seconds=0, training=training)


def rnn_with_dropout() -> TrainJob:
    """What it hides is drawn from torch's own generator, batch by batch."""
    job = make_job(epochs=2, checkpoint_seconds=0)
    architecture = Rnn(hidden_size=16, recurrent_dropout=0.3, readout_dropout=0.3)
    model = job.trial.model.model_copy(update={"architecture": architecture})
    return job.model_copy(update={"trial": job.trial.model_copy(update={"model": model})})


@pytest.mark.parametrize(
    ("job", "batches"),
    [
        *((rnn_with(name), BATCHES) for name in ("rmsprop", "adagrad", "sgd")),
        (rnn_with_dropout(), BATCHES),
        (make_overflowing_job(nan_recovery=0.1, checkpoint_seconds=0), 10),
    ],
    ids=["rmsprop", "adagrad", "sgd", "dropout", "recovering"],
)
def test_every_optimizer_and_every_diagnostic_goes_on_as_if_unbroken(
    job: TrainJob, batches: int, cache: Path, tmp_path: Path
) -> None:
    unbroken, code = in_new_process(run, job, cache, tmp_path / "unbroken", None)
    assert code == 0
    assert all(epoch["gradient_last"] > 0 for epoch in unbroken["curve"].values())
    recovered = [epoch["recovered_batches"] for epoch in unbroken["curve"].values()]
    assert any(recovered) == (job.trial.training.nan_recovery is not None)
    # In an epoch, at its last batch whose gradients are watched, at its end, and in the second.
    for kill_after in (2, batches, batches + 1, batches + 3):
        file = tmp_path / f"resume-{kill_after}"
        lost, code = in_new_process(run, job, cache, file, kill_after)
        assert (lost, code) == (None, -signal.SIGKILL)
        resumed, code = in_new_process(run, job, cache, file, None)
        assert code == 0
        assert resumed["checkpoint"] == unbroken["checkpoint"]
        assert resumed["best"] == unbroken["best"]
        assert job.epochs in resumed["curve"]
        for epoch, numbers in resumed["curve"].items():
            assert numbers == unbroken["curve"][epoch]


def test_killed_twice_equals_unbroken(cache: Path, tmp_path: Path) -> None:
    job = make_job(epochs=EPOCHS, checkpoint_seconds=0)
    unbroken, _ = in_new_process(run, job, cache, tmp_path / "unbroken", None)
    file = tmp_path / "resume"
    for kill_after in (3, 4):
        in_new_process(run, job, cache, file, kill_after)
    resumed, _ = in_new_process(run, job, cache, file, None)
    assert resumed["checkpoint"] == unbroken["checkpoint"]
    assert resumed["best"] == unbroken["best"]


def test_what_is_gone_back_to_is_resumed_as_it_was_before_it_was_rounded(cache: Path) -> None:
    training = TrainingSpec(
        learning_rate=0.01, batch_size=64, quantised_epochs=0, plateau=Plateau(stale=1)
    )
    job = with_bits(make_job(epochs=4, checkpoint_seconds=0, training=training), 4)
    splits, qualities = load_splits(cache), (0.2, 0.5, 0.4, 0.3, 0.6)
    hooks, resumed = RecordingHooks(), RecordingHooks()
    whole = train(job, splits, task=Scripted(*qualities), hooks=hooks)
    # In the third epoch, after which training goes back to the second.
    middle = hooks.saved[2 * (BATCHES + 1)]
    state = from_bytes(middle, job=job)
    assert state.best_unrounded.keys() == state.best.keys()
    assert not torch.equal(state.best_unrounded["recurrent.weight"], state.best["recurrent.weight"])
    again = train(job, splits, task=Scripted(*qualities[2:]), hooks=resumed, resume=middle)
    assert resumed.reports[-1].train_loss == hooks.reports[-1].train_loss
    for name, tensor in whole.module.state_dict().items():
        assert torch.equal(again.module.state_dict()[name], tensor)
    # An earlier version's file has the rounded numbers alone.
    old = to_bytes(replace(state, best_unrounded={}), job=job)
    assert b"best_unrounded" not in old
    older = RecordingHooks()
    train(job, splits, task=Scripted(*qualities[2:]), hooks=older, resume=old)
    assert older.reports[0].train_loss == hooks.reports[2].train_loss
    assert older.reports[1].train_loss != hooks.reports[3].train_loss


@pytest.mark.parametrize("bits", [32, 4])
def test_a_file_to_resume_from_passes_its_check(bits: int, cache: Path) -> None:
    training = TrainingSpec(batch_size=64, plateau=Plateau())
    job = with_bits(make_job(epochs=1, checkpoint_seconds=0, training=training), bits)
    hooks = RecordingHooks()
    train(job, load_splits(cache), task=TASK, hooks=hooks)
    for content in hooks.saved:
        check_artifact("resume", BytesIO(content), job)
    state = from_bytes(hooks.saved[-1], job=job)
    assert bool(state.best_unrounded) == (bits == 4)
    torn = replace(state, best_unrounded={"elsewhere": torch.zeros(1)})
    with pytest.raises(ReportRefused, match="best_unrounded:"):
        check_artifact("resume", BytesIO(to_bytes(torn, job=job)), job)


@pytest.fixture
def saved(cache: Path) -> bytes:
    hooks = RecordingHooks()
    train(make_job(epochs=1, checkpoint_seconds=0), load_splits(cache), task=TASK, hooks=hooks)
    return hooks.saved[-1]


def test_a_state_survives_its_file_exactly(saved: bytes) -> None:
    job = make_job()
    state = from_bytes(saved, job=job)
    again = from_bytes(to_bytes(state, job=job), job=job)
    assert again.position == state.position
    for name in ("model", "best", "optimizer", "generators"):
        before, after = getattr(state, name), getattr(again, name)
        assert before.keys() == after.keys()
        assert before
        assert all(torch.equal(before[key], after[key]) for key in before)


@pytest.mark.parametrize("value", [1 / 3, 5e-324, 1.7976931348623157e308, -0.0, 0.1 + 0.2])
def test_a_position_survives_its_file_to_the_last_bit(value: float) -> None:
    job = make_job()
    position = Position(
        epoch=2,
        batch=1,
        loss_sum=value,
        loss_samples=64,
        recovered_batches=1,
        gradient_first=value,
        gradient_last=value,
        best_epoch=1,
        best_quality=value,
    )
    state = ResumeState(position, model={}, best={}, optimizer={}, generators={}, carried={})
    read = from_bytes(to_bytes(state, job=job), job=job).position
    assert read == position
    assert read.loss_sum.hex() == value.hex()
    for number in (read.best_quality, read.gradient_first, read.gradient_last):
        assert number is not None
        assert number.hex() == value.hex()


def test_more_epochs_than_the_killed_run_was_given_are_allowed(saved: bytes) -> None:
    assert from_bytes(saved, job=make_job(epochs=50)).position.epochs_trained == 1


@pytest.mark.parametrize(
    "job",
    [
        make_job(seed=8),
        make_job("rnn-householder_svd"),
        make_job(training=TrainingSpec(learning_rate=0.02)),
        make_job().model_copy(update={"task": TASK.model_copy(update={"layout": "pixels"})}),
    ],
    ids=["seed", "model", "training", "task"],
)
def test_another_trials_file_is_refused(saved: bytes, job: TrainJob) -> None:
    with pytest.raises(CheckpointError, match="belongs to another trial"):
        from_bytes(saved, job=job)


def test_damaged_files_are_refused(saved: bytes) -> None:
    for damaged in (b"", b"short", saved[:100], saved[:-1], saved + b"x", b"\xff" * 64):
        with pytest.raises(CheckpointError, match="resume file is damaged"):
            from_bytes(damaged, job=make_job())


def test_a_model_checkpoint_is_not_taken_for_a_resume_file() -> None:
    spec: ModelSpec = make_job().trial.model
    with pytest.raises(CheckpointError, match="not a resume file"):
        from_bytes(save_bytes(spec.build(seed=0), spec), job=make_job())
