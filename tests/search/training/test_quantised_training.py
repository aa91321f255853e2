"""Training models of few bits: what is validated, what is learned from, what is kept."""

import math
import signal
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from models.checkpoint import load, save_bytes
from models.compression import convert
from models.model import after_step, spectral_margin
from models.network import Network
from models.quantization import Bits, encoded, round_, rounded_for_a_step, rounded_weights
from search.errors import TrainingDiverged
from search.studies.memory import training_need
from search.tasks import DataSources, Split, Splits
from search.training.jobs import TrainJob
from search.training.optimizers import make_optimizer
from search.training.resume import from_bytes
from search.training.run import train
from search.training.trial_spec import TrainingSpec
from tests.search.forked import in_new_process
from tests.search.killed_training import run
from tests.search.training_cases import (
    TASK,
    RecordingHooks,
    load_splits,
    make_job,
    make_overflowing_job,
    with_bits,
)

BITS: tuple[Bits, ...] = (8, 4)
BATCHES = 4  # 200 samples, 64 at a time


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cache")
    load_splits(folder)
    return folder


@pytest.fixture(scope="module")
def splits(cache: Path) -> Splits[Split]:
    return load_splits(cache)


def job_of(
    bits: int,
    model: str = "gru-low_rank_diagonal",
    *,
    quantised_epochs: int = 2,
    epochs: int = 3,
    checkpoint_seconds: float = 1e9,
) -> TrainJob:
    training = TrainingSpec(
        learning_rate=0.01, batch_size=64, decay=0.8, quantised_epochs=quantised_epochs
    )
    job = make_job(model, epochs=epochs, training=training, checkpoint_seconds=checkpoint_seconds)
    return with_bits(job, bits)


def plain_loop(job: TrainJob, splits: Splits[Split]) -> list[tuple[dict[str, Tensor], float]]:
    """The same training, written down once more: each epoch's rounded weights and accuracy."""
    training, bits = job.trial.training, job.trial.model.rounded_to
    module = job.trial.model.unrounded.build(seed=job.trial.seed)
    optimizer = make_optimizer(module, training)
    first_rates = [group["lr"] for group in optimizer.param_groups]
    order = torch.Generator().manual_seed(job.trial.seed)
    found: list[tuple[dict[str, Tensor], float]] = []
    for epoch in range(1, job.epochs + 1):
        for group, rate in zip(optimizer.param_groups, first_rates, strict=True):
            group["lr"] = rate * training.decay ** (epoch - 1)
        learns = epoch > job.epochs - training.quantised_epochs
        rows = torch.randperm(len(splits.train), generator=order)
        for start in range(0, len(rows), training.batch_size):
            batch = rows[start : start + training.batch_size]
            optimizer.zero_grad()
            with rounded_for_a_step(module, bits if learns else None):
                output = module(splits.train.x[batch])
                nn.functional.cross_entropy(output, splits.train.y[batch]).backward()
            assert training.clip_norm is not None
            nn.utils.clip_grad_norm_(module.parameters(), training.clip_norm)
            optimizer.step()
            after_step(module)
        with torch.no_grad(), rounded_weights(module, bits):
            state = {name: tensor.clone() for name, tensor in module.state_dict().items()}
            guesses = module(splits.validation.x).argmax(dim=1)
        found.append((state, float((guesses == splits.validation.y).double().mean())))
    return found


@pytest.mark.parametrize("bits", BITS)
@pytest.mark.parametrize("model", ["rnn-householder_svd", "gru-low_rank_diagonal"])
def test_the_rounded_weights_are_validated_and_the_last_epochs_learn_from_them(
    model: str, bits: Bits, splits: Splits[Split]
) -> None:
    job = job_of(bits, model, quantised_epochs=1)
    hooks = RecordingHooks()
    result = train(job, splits, task=TASK, hooks=hooks)
    expected = plain_loop(job, splits)
    assert [report.validation for report in hooks.reports] == pytest.approx(
        [quality for _, quality in expected], abs=1e-9
    )
    assert result.quality == hooks.reports[result.best_epoch - 1].validation
    best = expected[result.best_epoch - 1][0]
    found = result.module.state_dict()
    assert found.keys() == best.keys()
    assert all(torch.equal(found[name], best[name]) for name in best)


@pytest.mark.parametrize("bits", BITS)
def test_what_comes_out_is_rounded_and_its_qualities_are_its_own(
    bits: Bits, splits: Splits[Split]
) -> None:
    job = job_of(bits)
    hooks = RecordingHooks()
    result = train(job, splits, task=TASK, hooks=hooks)
    encoded(result.module, bits)
    loaded = load(save_bytes(result.module, job.trial.model))
    with torch.no_grad():
        for split, quality in (
            (splits.validation, result.quality),
            (splits.test, result.test_quality),
        ):
            guesses = loaded.module.eval()(split.x).argmax(dim=1)
            assert float((guesses == split.y).double().mean()) == pytest.approx(quality, abs=1e-9)
    if spectral_margin(result.module) is not None:
        margin = hooks.reports[result.best_epoch - 1].spectral_margin
        assert margin == pytest.approx(spectral_margin(result.module))


def test_until_the_last_epochs_training_is_that_of_32_bits(splits: Splits[Split]) -> None:
    """So plain rounding is validated before anything learns of it, and kept where it is better."""
    curves: dict[tuple[int, int], list[float | None]] = {}
    for bits, quantised_epochs in ((32, 2), (8, 0), (8, 1), (8, 99)):
        hooks = RecordingHooks()
        train(job_of(bits, quantised_epochs=quantised_epochs), splits, task=TASK, hooks=hooks)
        curves[bits, quantised_epochs] = [report.train_loss for report in hooks.reports]
    assert curves[8, 0] == curves[32, 2]
    assert curves[8, 1][:2] == curves[32, 2][:2]
    assert curves[8, 1][2] != curves[32, 2][2]
    assert all(a != b for a, b in zip(curves[8, 99], curves[32, 2], strict=True))


@pytest.mark.parametrize("bits", BITS)
def test_killed_and_resumed_equals_unbroken_bit_for_bit(
    bits: Bits, cache: Path, tmp_path: Path
) -> None:
    job = job_of(bits, quantised_epochs=1, checkpoint_seconds=0)
    unbroken, code = in_new_process(run, job, cache, tmp_path / "unbroken", None)
    assert code == 0
    # In and after a plain epoch, right before the quantised one, in it, and at its end.
    for kill_after in (2, BATCHES + 1, 2 * (BATCHES + 1), 2 * (BATCHES + 1) + 2, 3 * (BATCHES + 1)):
        file = tmp_path / f"resume-{kill_after}"
        lost, code = in_new_process(run, job, cache, file, kill_after)
        assert (lost, code) == (None, -signal.SIGKILL)
        resumed, code = in_new_process(run, job, cache, file, None)
        assert code == 0
        assert resumed["checkpoint"] == unbroken["checkpoint"]
        assert resumed["best"] == unbroken["best"]
        for epoch, numbers in resumed["curve"].items():
            assert numbers == unbroken["curve"][epoch]


def test_a_resume_file_holds_the_weights_that_are_trained(splits: Splits[Split]) -> None:
    job = job_of(8, checkpoint_seconds=0)
    hooks = RecordingHooks()
    train(job, splits, task=TASK, hooks=hooks)
    state = from_bytes(hooks.saved[-1], job=job)
    rounded = job.trial.model.unrounded.build(seed=0)
    rounded.load_state_dict(state.model)
    round_(rounded, 8)
    name = "recurrent.left"
    assert not torch.equal(rounded.state_dict()[name], state.model[name])
    rounded.load_state_dict(state.best)
    encoded(rounded, 8)


def test_an_early_end_keeps_the_best_of_plain_rounding(splits: Splits[Split]) -> None:
    job = job_of(4, epochs=9)
    hooks = RecordingHooks(stop_after=2)
    result = train(job, splits, task=TASK, hooks=hooks)
    assert (result.outcome, result.epochs_trained) == ("stopped", 2)
    encoded(result.module, 4)
    assert result.quality == max(report.validation for report in hooks.reports)


@pytest.mark.parametrize("nan_recovery", [None, 0.1])
def test_what_diverges_is_noticed(nan_recovery: float | None, tmp_path: Path) -> None:
    job = with_bits(make_overflowing_job(nan_recovery=nan_recovery), 8)
    data = job.task.load(DataSources(cache=tmp_path))
    hooks = RecordingHooks()
    if nan_recovery is None:
        with pytest.raises(TrainingDiverged):
            train(job, data, task=job.task, hooks=hooks)
        return
    result = train(job, data, task=job.task, hooks=hooks)
    assert math.isfinite(result.quality)
    assert any(report.recovered_batches for report in hooks.reports)


def test_a_trial_that_starts_from_a_conversion_validates_it_rounded(
    splits: Splits[Split],
) -> None:
    job = job_of(4)
    start: Network = job.trial.model.unrounded.build(seed=5)
    compression = {"sha256": "0" * 64, "calibration_samples": 8}
    trial = job.trial.model_validate({**job.trial.model_dump(), "compression": compression})
    hooks = RecordingHooks(stop_after=0)
    result = train(
        job.model_copy(update={"trial": trial}),
        splits,
        task=TASK,
        hooks=hooks,
        start=start.state_dict(),
    )
    assert (result.best_epoch, [report.epoch for report in hooks.reports]) == (0, [0])
    round_(start, 4)
    assert all(map(torch.equal, result.module.state_dict().values(), start.state_dict().values()))
    again, _ = convert(start, trial.model)
    encoded(again, 4)


def test_rounded_weights_take_memory_beside_the_others() -> None:
    plain, few = (training_need(TASK, job_of(bits).trial) for bits in (32, 8))
    count = job_of(8).trial.model.parameter_count()
    assert few.computing - plain.computing == 4 * count
