"""A trial that pauses and goes on equals an unbroken one, bit for bit."""

from pathlib import Path

import pytest
import torch

from models.checkpoint import save_bytes
from search.training.jobs import EpochReport, TrainJob, Verdict
from search.training.resume import from_bytes
from search.training.run import TrainingResult, train
from search.training.trial_spec import OptimizerName, TrainingSpec
from tests.search.training_cases import TASK, RecordingHooks, load_splits, make_job

EPOCHS = 4


class PausingHooks(RecordingHooks):
    """Pauses after the named epochs."""

    def __init__(self, *epochs: int) -> None:
        super().__init__()
        self._epochs = epochs

    def epoch_done(self, report: EpochReport) -> Verdict:
        verdict = super().epoch_done(report)
        if report.epoch not in self._epochs:
            return verdict
        return Verdict(verdict="pause", reason="others come first", lease_seconds=1)


def job_with(optimizer: OptimizerName, **given: object) -> TrainJob:
    training = TrainingSpec.model_validate(
        {"optimizer": optimizer, "learning_rate": 0.01, "decay": 0.7, "batch_size": 64, **given}
    )
    # It stores nothing but where it pauses.
    return make_job(epochs=EPOCHS, checkpoint_seconds=1e9, training=training)


def trained(
    job: TrainJob, cache: Path, hooks: RecordingHooks, resume: bytes | None = None
) -> TrainingResult:
    torch.set_num_threads(1)
    return train(job, load_splits(cache), task=TASK, hooks=hooks, resume=resume)


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cache")
    load_splits(folder)
    return folder


@pytest.mark.parametrize("optimizer", ["adam", "rmsprop", "adagrad", "sgd"])
def test_thawed_equals_unbroken(optimizer: OptimizerName, cache: Path) -> None:
    job = job_with(optimizer, weight_decay=0.01)
    whole = RecordingHooks()
    expected = trained(job, cache, whole)
    reports: list[EpochReport] = []
    resume: bytes | None = None
    for stretch in (1, 2):
        hooks = PausingHooks(stretch)
        paused = trained(job, cache, hooks, resume)
        assert (paused.outcome, paused.epochs_trained) == ("paused", stretch)
        assert paused.reason == "others come first"
        assert paused.test_quality is None
        assert paused.test_metrics == {}
        (resume,) = hooks.saved
        reports += hooks.reports
    last = RecordingHooks()
    result = trained(job, cache, last, resume)
    reports += last.reports
    assert [report.epoch for report in reports] == list(range(1, EPOCHS + 1))
    assert [one.validation for one in reports] == [one.validation for one in whole.reports]
    assert [one.train_loss for one in reports] == [one.train_loss for one in whole.reports]
    model = job.trial.model
    assert save_bytes(result.module, model) == save_bytes(expected.module, model)
    assert result.test_metrics == expected.test_metrics
    assert result.best_epoch == expected.best_epoch


def test_a_paused_trial_has_the_model_of_its_best_epoch(cache: Path) -> None:
    job = job_with("sgd", decay=1.0)
    hooks = PausingHooks(3)
    paused = trained(job, cache, hooks)
    best = max(hooks.reports, key=lambda report: report.validation)
    assert paused.quality == best.validation
    state = from_bytes(hooks.saved[-1], job=job)
    assert state.position.epochs_trained == 3
    for name, tensor in paused.module.state_dict().items():
        assert torch.equal(tensor, state.best[name])


def test_an_order_to_pause_after_the_last_epoch_changes_nothing(cache: Path) -> None:
    hooks = PausingHooks(EPOCHS)
    result = trained(job_with("adam"), cache, hooks)
    assert result.outcome == "complete"
    assert result.test_quality is not None
    assert hooks.saved == []
