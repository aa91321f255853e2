import itertools
import math
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from models.architectures import Highway
from models.backends.loops import State
from models.linear import StructuredLinear
from models.model import ModelSpec, after_step
from models.parametrizations import Dense
from search.errors import TrainingDiverged
from search.tasks import Split, Splits
from search.training.jobs import TrainJob
from search.training.resume import from_bytes
from search.training.run import is_out_of_memory, train
from search.training.stacks import alone
from search.training.trial_spec import OptimizerName, TrainingSpec
from tests.search.training_cases import (
    MODELS,
    SIGNATURE,
    TASK,
    RecordingHooks,
    Scripted,
    load_splits,
    make_job,
    make_spoilt_text,
    poisoned,
)


@pytest.fixture(scope="module")
def splits(tmp_path_factory: pytest.TempPathFactory) -> Splits[Split]:
    return load_splits(tmp_path_factory.mktemp("cache"))


def parameters(module: nn.Module) -> dict[str, Tensor]:
    return {name: value.detach().clone() for name, value in module.named_parameters()}


def equal(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def plain_loop(
    job: TrainJob, splits: Splits[Split]
) -> tuple[nn.Module, list[float], list[tuple[float, float]]]:
    """The same training, written down once more without any of its machinery."""
    training = job.trial.training
    module = job.trial.model.build(seed=job.trial.seed)
    optimizer = torch.optim.Adam(module.parameters(), lr=training.learning_rate)
    schedule = torch.optim.lr_scheduler.ExponentialLR(optimizer, training.decay)
    order = torch.Generator().manual_seed(job.trial.seed)
    losses: list[float] = []
    validations: list[tuple[float, float]] = []
    for _ in range(job.epochs):
        total = 0.0
        rows = torch.randperm(len(splits.train), generator=order)
        for start in range(0, len(rows), training.batch_size):
            batch = rows[start : start + training.batch_size]
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(module(splits.train.x[batch]), splits.train.y[batch])
            loss.backward()
            assert training.clip_norm is not None
            nn.utils.clip_grad_norm_(module.parameters(), training.clip_norm)
            optimizer.step()
            after_step(module)
            total += loss.item() * len(batch)
        schedule.step()
        losses.append(total / len(splits.train))
        with torch.no_grad():
            outputs, y = module(splits.validation.x), splits.validation.y
        accuracy = (outputs.argmax(dim=1) == y).double().mean()
        validations.append((float(accuracy), float(nn.functional.cross_entropy(outputs, y))))
    return module, losses, validations


@pytest.mark.parametrize("model", ["rnn-dense", "gru-low_rank_diagonal"])
def test_training_is_what_a_plain_loop_with_adam_does(model: str, splits: Splits[Split]) -> None:
    clipped = TrainingSpec(learning_rate=0.01, batch_size=48, decay=0.5, clip_norm=0.3)
    job = make_job(model, training=clipped)
    hooks = RecordingHooks()
    result = train(job, splits, task=TASK, hooks=hooks)
    module, losses, validations = plain_loop(job, splits)
    assert [report.epoch for report in hooks.reports] == [1, 2, 3]
    assert [report.train_loss for report in hooks.reports] == pytest.approx(losses, rel=1e-6)
    found = [(report.validation, report.validation_loss or 0.0) for report in hooks.reports]
    for reported, computed in zip(found, validations, strict=True):
        assert reported == pytest.approx(computed, rel=1e-6)
    assert result.outcome == "complete"
    assert result.reason is None
    assert result.epochs_trained == 3
    assert result.quality == max(report.validation for report in hooks.reports)
    rising = Scripted(0.1, 0.2, 0.3, 0.0)
    to_last = train(job, splits, task=rising, hooks=RecordingHooks())
    for name, value in module.named_parameters():
        torch.testing.assert_close(to_last.module.get_parameter(name), value)


def test_learning_gets_somewhere_on_real_digits(splits: Splits[Split]) -> None:
    job = make_job(epochs=30, training=TrainingSpec(learning_rate=0.01, batch_size=32))
    result = train(job, splits, task=TASK, hooks=RecordingHooks())
    assert result.quality > 0.5
    assert result.test_metrics["accuracy"] > 0.5


def test_one_seed_gives_one_result_and_another_another(splits: Splits[Split]) -> None:
    def run(seed: int) -> dict[str, Tensor]:
        hooks = RecordingHooks()
        return parameters(train(make_job(seed=seed), splits, task=TASK, hooks=hooks).module)

    assert equal(run(1), run(1))
    assert not equal(run(1), run(2))


def test_each_epoch_is_a_fresh_order_of_all_samples_short_batch_included(
    splits: Splits[Split],
) -> None:
    task = Scripted(0.1, 0.2, 0.3)
    train(make_job(epochs=2), splits, task=task, hooks=RecordingHooks())
    assert [len(target) for target in task.targets] == [64, 64, 64, 8] * 2
    first, second = torch.cat(task.targets[:4]), torch.cat(task.targets[4:])
    assert not torch.equal(first, second)
    assert torch.equal(first.sort().values, splits.train.y.sort().values)
    assert torch.equal(second.sort().values, splits.train.y.sort().values)


@pytest.mark.parametrize(
    ("direction", "qualities", "best"),
    [("maximize", [0.3, 0.5, 0.5, 0.4], 2), ("minimize", [7.0, 2.0, 3.0, 2.0], 2)],
)
def test_the_best_epoch_is_the_first_of_the_best_and_its_parameters_are_kept(
    splits: Splits[Split], direction: str, qualities: list[float], best: int
) -> None:
    task = Scripted(*qualities, 0.77, direction=direction)
    result = train(make_job(epochs=4), splits, task=task, hooks=RecordingHooks())
    assert result.best_epoch == best
    assert result.quality == qualities[best - 1]
    assert result.test_quality == 0.77
    assert result.epochs_trained == 4
    to_best = train(
        make_job(epochs=best), splits, task=Scripted(*range(best), 0), hooks=RecordingHooks()
    )
    assert equal(parameters(result.module), parameters(to_best.module))


@pytest.mark.parametrize(
    ("losses", "best"), [({2: 0.7, 3: 0.5}, 3), ({2: 0.5, 3: 0.7}, 2), ({2: math.nan, 3: 9.0}, 3)]
)
def test_of_epochs_with_one_quality_the_lowest_validation_loss_is_best(
    splits: Splits[Split], losses: dict[int, float], best: int
) -> None:
    task = Scripted(0.3, 0.5, 0.5, 0.4, 0.77, losses=losses)
    result = train(make_job(epochs=4), splits, task=task, hooks=RecordingHooks())
    assert (result.best_epoch, result.quality) == (best, 0.5)


def test_a_stop_ends_training_after_the_epoch(splits: Splits[Split]) -> None:
    hooks = RecordingHooks(stop_after=2)
    result = train(make_job(epochs=5), splits, task=TASK, hooks=hooks)
    assert (result.outcome, result.reason, result.epochs_trained) == ("stopped", "beaten by 3", 2)
    assert len(hooks.reports) == 2


def test_a_stop_after_the_last_epoch_of_the_budget_stops_nothing(splits: Splits[Split]) -> None:
    hooks = RecordingHooks(stop_after=2)
    result = train(make_job(epochs=2), splits, task=TASK, hooks=hooks)
    assert (result.outcome, result.reason, result.epochs_trained) == ("complete", None, 2)


def test_the_test_split_chooses_nothing(splits: Splits[Split]) -> None:
    wrong = Splits(splits.train, splits.validation, Split(splits.test.x, (splits.test.y + 1) % 10))
    one = train(make_job(), splits, task=TASK, hooks=RecordingHooks())
    other = train(make_job(), wrong, task=TASK, hooks=RecordingHooks())
    assert equal(parameters(one.module), parameters(other.module))
    assert one.test_quality != other.test_quality


def test_the_device_works_only_inside_batches(splits: Splits[Split]) -> None:
    hooks = RecordingHooks()
    outside: list[str] = []

    def watch(module: nn.Module, inputs: object) -> None:
        if not hooks.inside:
            outside.append(type(module).__name__)

    handle = nn.modules.module.register_module_forward_pre_hook(watch)
    try:
        train(make_job(epochs=2), splits, task=TASK, hooks=hooks)
    finally:
        handle.remove()
    assert outside == []
    # 4 training batches and 2 of validation in each of 2 epochs; 2 of test.
    assert hooks.batches == 2 * (4 + 2) + 2


def test_time_stood_still_is_told_and_is_no_training_time(splits: Splits[Split]) -> None:
    class Halting(RecordingHooks):
        @contextmanager
        def batch(self) -> Iterator[None]:
            started = time.monotonic()
            time.sleep(0.02)
            self.stood_still_seconds += time.monotonic() - started
            with super().batch():
                yield

    hooks = Halting()
    started = time.monotonic()
    train(make_job(epochs=2), splits, task=TASK, hooks=hooks)
    elapsed = time.monotonic() - started
    told = [report.stood_still_seconds for report in hooks.reports]
    assert 0 < told[0] < told[1] <= hooks.stood_still_seconds
    assert sum(report.seconds for report in hooks.reports) <= elapsed - told[1]


@pytest.mark.parametrize(("seconds", "saves"), [(0, 2 * (4 + 1)), (1e9, 0)])
def test_resume_files_are_as_far_apart_as_the_job_says(
    splits: Splits[Split], seconds: float, saves: int
) -> None:
    hooks = RecordingHooks()
    job = make_job(epochs=2, checkpoint_seconds=seconds)
    train(job, splits, task=TASK, hooks=hooks)
    assert len(hooks.saved) == saves


@pytest.mark.parametrize("kind", ["rnn-householder_svd", "rnn-dense"])
def test_the_margin_is_that_of_the_trained_singular_values(
    splits: Splits[Split], kind: str
) -> None:
    hooks, rising = RecordingHooks(), Scripted(0.1, 0.2, 0.3, 0.0)
    result = train(make_job(kind), splits, task=rising, hooks=hooks)
    recurrent = result.module.get_submodule("recurrent")
    assert isinstance(recurrent, StructuredLinear)
    values = torch.linalg.svdvals(recurrent.dense_weight().detach().double())
    margin = hooks.reports[-1].spectral_margin
    assert margin == pytest.approx(float((values - 1).abs().max()), abs=1e-5)


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_loss_that_is_no_number_names_epoch_batch_and_value(
    splits: Splits[Split], value: float
) -> None:
    order = torch.randperm(200, generator=torch.Generator().manual_seed(7))
    third_batch_row = int(order[2 * 64])
    damaged = Splits(poisoned(splits.train, third_batch_row, value), splits.validation, splits.test)
    with pytest.raises(TrainingDiverged, match=r"epoch 1, batch 3: the loss is (nan|inf)"):
        train(make_job(seed=7), damaged, task=TASK, hooks=RecordingHooks())


def test_recovery_begins_anew_after_a_window_that_is_no_number(tmp_path: Path) -> None:
    """What is carried on from it would make each further window of the pass no number either."""
    job, splits = make_spoilt_text(tmp_path, checkpoint_seconds=0)
    hooks = RecordingHooks()
    whole = train(job, splits, task=job.task, hooks=hooks)
    assert [report.recovered_batches for report in hooks.reports] == [1, 1]
    state = from_bytes(hooks.saved[2], job=job)
    first = state.model["initial_state"].unbind(0)
    assert all(part.any() for part in first)
    for part, own in zip((state.carried["0"], state.carried["1"]), first, strict=True):
        assert torch.equal(part, own.expand_as(part))
    resumed = train(job, splits, task=job.task, hooks=RecordingHooks(), resume=hooks.saved[2])
    assert equal(parameters(resumed.module), parameters(whole.module))


def test_recovery_begins_anew_where_the_state_alone_is_no_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job, splits = make_spoilt_text(tmp_path)
    plain, answered = alone.answer, itertools.count()

    def answer(*arguments: Any) -> tuple[Tensor, State]:
        output, carried = plain(*arguments)
        is_second = output.requires_grad and next(answered) == 1
        return output, tuple(part * torch.inf for part in carried) if is_second else carried

    monkeypatch.setattr(alone, "answer", answer)
    hooks = RecordingHooks()
    train(job, splits, task=job.task, hooks=hooks)
    assert [report.recovered_batches for report in hooks.reports] == [1, 1]


def test_statistics_of_batches_outlive_one_that_overflows(splits: Splits[Split]) -> None:
    damaged = Splits(poisoned(splits.train, 5, 1e30), splits.validation, splits.test)
    model = ModelSpec(
        architecture=Highway(hidden_size=8, stack="batch_normalised"),
        parametrization=Dense(),
        signature=SIGNATURE,
    )
    job = make_job(training=TrainingSpec(learning_rate=0.01, batch_size=20, nan_recovery=0.1))
    job = job.model_copy(update={"trial": job.trial.model_copy(update={"model": model})})
    result = train(job, damaged, task=TASK, hooks=RecordingHooks())
    assert all(bool(buffer.isfinite().all()) for buffer in result.module.buffers())


def test_a_gradient_that_is_no_number_names_epoch_batch_and_value(splits: Splits[Split]) -> None:
    class Steep(Scripted):
        def loss(self, output: Tensor, target: Tensor) -> Tensor:  # noqa: ARG002
            return (output - output.detach()).abs().sqrt().sum()  # 0, with slope 0 * inf

    with pytest.raises(TrainingDiverged, match="epoch 1, batch 1: the gradient's norm is nan"):
        train(make_job(), splits, task=Steep(), hooks=RecordingHooks())


def test_predictions_that_are_no_numbers_are_named(splits: Splits[Split]) -> None:
    damaged = Splits(splits.train, poisoned(splits.validation, 5, math.nan), splits.test)
    with pytest.raises(TrainingDiverged, match="epoch 1: 10 of 2560 predictions of a batch"):
        train(make_job(), damaged, task=TASK, hooks=RecordingHooks())


def test_a_quality_that_is_no_number_is_named(splits: Splits[Split]) -> None:
    with pytest.raises(TrainingDiverged, match="epoch 1: score on held-out samples is inf"):
        train(make_job(), splits, task=Scripted(math.inf), hooks=RecordingHooks())


def test_memory_that_ran_out_is_told_from_other_errors() -> None:
    with pytest.raises(RuntimeError) as refused:
        torch.empty(2**50)
    assert is_out_of_memory(refused.value)
    assert is_out_of_memory(MemoryError())
    assert is_out_of_memory(torch.OutOfMemoryError("CUDA out of memory"))
    assert not is_out_of_memory(RuntimeError("mat1 and mat2 shapes cannot be multiplied"))
    assert not is_out_of_memory(ValueError("not enough memory of yesterday"))


def test_importing_runs_no_tensor_operation_and_leaves_cuda_alone(tmp_path: Path) -> None:
    script = """
import threading, torch
from torch.utils._python_dispatch import TorchDispatchMode

class Refuse(TorchDispatchMode):
    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        raise AssertionError(function)

with Refuse():
    import search.measuring.devices, search.measuring.measurement_lock, search.measuring.throughput
    import search.tasks, search.training.resume, search.training.run
assert not torch.cuda.is_initialized()
assert threading.active_count() == 1
"""
    subprocess.run([sys.executable, "-c", script], check=True)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("model", list(MODELS))
def test_a_gpu_learns_what_the_cpu_learns_and_resumes(model: str, splits: Splits[Split]) -> None:
    job = make_job(model, checkpoint_seconds=0)
    on_cpu, on_gpu = RecordingHooks(), RecordingHooks()
    train(job, splits, task=TASK, hooks=on_cpu)
    whole = train(job, splits, task=TASK, hooks=on_gpu, device="cuda")
    for cpu, gpu in zip(on_cpu.reports, on_gpu.reports, strict=True):
        assert gpu.train_loss == pytest.approx(cpu.train_loss, rel=1e-3)
    resumed = train(
        job, splits, task=TASK, hooks=RecordingHooks(), resume=on_gpu.saved[6], device="cuda"
    )
    assert resumed.best_epoch == whole.best_epoch
    for name, value in whole.module.named_parameters():
        torch.testing.assert_close(resumed.module.get_parameter(name), value)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("optimizer", ["adam", "rmsprop", "adagrad", "sgd"])
def test_every_optimizer_is_the_same_on_a_gpu(
    optimizer: OptimizerName, splits: Splits[Split]
) -> None:
    training = TrainingSpec(
        optimizer=optimizer, learning_rate=0.01, weight_decay=0.1, clip_value=0.05
    )
    job = make_job(checkpoint_seconds=0, training=training)
    on_cpu, on_gpu, resumed = RecordingHooks(), RecordingHooks(), RecordingHooks()
    train(job, splits, task=TASK, hooks=on_cpu)
    train(job, splits, task=TASK, hooks=on_gpu, device="cuda")
    train(job, splits, task=TASK, hooks=resumed, resume=on_gpu.saved[3], device="cuda")
    for reports in (on_gpu.reports, resumed.reports):
        for cpu, gpu in zip(on_cpu.reports, reports, strict=True):
            for name in ("train_loss", "gradient_first", "gradient_last"):
                assert getattr(gpu, name) == pytest.approx(getattr(cpu, name), rel=1e-3)
