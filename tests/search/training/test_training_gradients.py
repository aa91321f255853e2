"""What training does with gradients and tells of them, on real runs."""

import math
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from pydantic import Field, ValidationError
from torch import Tensor, nn

from models.architectures import Rnn
from models.model import ModelSpec
from models.network import Network
from models.parametrizations import Dense
from models.parametrizations.dense import DenseLinear
from search.errors import TrainingDiverged
from search.tasks import DataSources, Split, Splits
from search.training.jobs import TrainJob
from search.training.resume import from_bytes
from search.training.run import train
from search.training.trial_spec import OptimizerName, TrainingSpec
from tests.search.training_cases import (
    PIXELS,
    SIGNATURE,
    TASK,
    FixedMeter,
    RecordingHooks,
    load_splits,
    make_job,
    make_overflowing_job,
)

NOT_CLIPPED = TrainingSpec(optimizer="sgd", learning_rate=0.5, batch_size=200, clip_norm=None)


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def splits(cache: Path) -> Splits[Split]:
    return load_splits(cache)


class AnyQuality:
    """The digits, where every epoch is better than those before, so that the last one is kept."""

    title: ClassVar[str] = TASK.title
    paper: ClassVar[str] = TASK.paper
    kind = "digits"

    def __init__(self) -> None:
        self.metric, self.signature, self.load = TASK.metric, TASK.signature, TASK.load
        self.loss, self.soft_loss = TASK.loss, TASK.soft_loss
        self._asked = 0

    def meter(self) -> FixedMeter:
        self._asked += 1
        return FixedMeter(self.metric.name, 1 - 1 / self._asked)


def weights_after(job: TrainJob, splits: Splits[Split]) -> tuple[dict[str, Tensor], RecordingHooks]:
    hooks = RecordingHooks()
    result = train(job, splits, task=AnyQuality(), hooks=hooks)
    assert result.best_epoch == job.epochs
    return {name: value.detach() for name, value in result.module.named_parameters()}, hooks


def with_training(job: TrainJob, training: TrainingSpec, **model: Any) -> TrainJob:
    trial = job.trial.model_copy(update={"training": training, **model})
    return job.model_copy(update={"trial": trial})


@pytest.mark.parametrize("optimizer", ["adam", "rmsprop", "adagrad", "sgd"])
def test_every_optimizer_learns_real_digits(
    optimizer: OptimizerName, splits: Splits[Split]
) -> None:
    rate = {"adam": 0.01, "rmsprop": 0.005, "adagrad": 0.05, "sgd": 0.3}[optimizer]
    training = TrainingSpec(optimizer=optimizer, learning_rate=rate, batch_size=20)
    hooks = RecordingHooks()
    result = train(make_job(epochs=25, training=training), splits, task=TASK, hooks=hooks)
    assert result.test_metrics["accuracy"] > 0.5
    losses = [report.train_loss for report in hooks.reports]
    assert losses[0] is not None
    assert losses[-1] is not None
    assert losses[-1] < losses[0] / 2


def test_a_step_is_no_longer_than_clip_value_lets_it_be(splits: Splits[Split]) -> None:
    def moved(clip_value: float | None) -> np.ndarray:
        training = NOT_CLIPPED.model_copy(update={"clip_value": clip_value})
        job = make_job(epochs=1, training=training)
        before = dict(job.trial.model.build(seed=7).named_parameters())
        after, _ = weights_after(job, splits)
        steps = [(after[name] - before[name].detach()).flatten() for name in after]
        return torch.cat(steps).numpy()

    free, cut = moved(None), moved(0.01)
    limit = NOT_CLIPPED.learning_rate * 0.01
    assert (np.abs(free) > 2 * limit).any()
    np.testing.assert_allclose(cut, np.clip(free, -limit, limit), atol=1e-7)


RIDGE = 0.25


class RidgeWeight(DenseLinear):
    """A plain matrix that asks for RIDGE / 2 |W|^2."""

    ridge = RIDGE

    def penalty(self) -> Tensor:
        return self.ridge / 2 * self.weight.square().sum()


class EndlessWeight(RidgeWeight):
    """One whose penalty overflows."""

    ridge = 1e38


class Penalised(ModelSpec):
    """A model whose recurrent matrix asks for a penalty, and that starts as the plain one does."""

    weight: type[RidgeWeight] = Field(default=RidgeWeight, exclude=True)

    def build(self, *, seed: int | None = None) -> Network:
        network = super().build(seed=seed)
        recurrent = network.get_submodule("recurrent")
        assert type(recurrent) is DenseLinear
        recurrent.__class__ = self.weight
        return network


def penalised(weight: type[RidgeWeight], **training: Any) -> TrainJob:
    plain = make_job(epochs=1)
    model = Penalised(**{**dict(plain.trial.model), "weight": weight})
    return with_training(plain, NOT_CLIPPED.model_copy(update=training), model=model)


def test_a_penalty_is_differentiated_and_not_told(splits: Splits[Split]) -> None:
    plain, told = weights_after(make_job(epochs=1, training=NOT_CLIPPED), splits)
    ridged, told_too = weights_after(penalised(RidgeWeight), splits)
    start = dict(make_job().trial.model.build(seed=7).named_parameters())
    [name] = [name for name in start if name.startswith("recurrent")]
    # The one step's gradient has RIDGE W more.
    wanted = plain[name] - NOT_CLIPPED.learning_rate * RIDGE * start[name].detach()
    torch.testing.assert_close(ridged[name], wanted, rtol=0, atol=1e-6)
    assert not torch.allclose(ridged[name], plain[name], atol=1e-3)
    for other in set(plain) - {name}:
        torch.testing.assert_close(ridged[other], plain[other])
    assert told_too.reports[0].train_loss == told.reports[0].train_loss


def test_a_penalty_that_overflows_is_a_loss_that_does(splits: Splits[Split]) -> None:
    with pytest.raises(TrainingDiverged, match="epoch 1, batch 1: the loss is inf"):
        train(penalised(EndlessWeight), splits, task=TASK, hooks=RecordingHooks())


def overflowing_row(splits: Splits[Split], row: int) -> Splits[Split]:
    """The same data, one image of which makes the gradient's squares overflow."""
    x = splits.train.x.clone()
    x[row] = 1e30
    return Splits(Split(x, splits.train.y), splits.validation, splits.test)


LINEAR = ModelSpec(
    architecture=Rnn(hidden_size=8, activation="leaky_relu", leak=1),
    parametrization=Dense(),
    signature=SIGNATURE,
)


def test_recovery_shrinks_the_weights_in_place_of_the_batch_that_overflowed(
    splits: Splits[Split],
) -> None:
    training = TrainingSpec(
        optimizer="sgd", learning_rate=0.5, batch_size=64, clip_norm=1.0, nan_recovery=0.1
    )
    job = with_training(make_job(epochs=2), training, model=LINEAR)
    found, hooks = weights_after(job, overflowing_row(splits, row=17))
    assert [report.recovered_batches for report in hooks.reports] == [1, 1]

    module = LINEAR.build(seed=7)
    order = torch.Generator().manual_seed(7)
    for _ in range(2):
        for rows in torch.randperm(200, generator=order).split(64):
            if 17 in rows.tolist():
                with torch.no_grad():
                    for parameter in module.parameters():
                        parameter *= 1 - 0.5 * 0.1
                continue
            module.zero_grad()
            loss = nn.functional.cross_entropy(module(splits.train.x[rows]), splits.train.y[rows])
            loss.backward()
            nn.utils.clip_grad_norm_(module.parameters(), 1.0)
            with torch.no_grad():
                for parameter in module.parameters():
                    assert parameter.grad is not None
                    parameter -= 0.5 * parameter.grad
    for name, value in module.named_parameters():
        torch.testing.assert_close(found[name], value.detach())


def test_a_batch_without_a_finite_loss_is_left_out_of_the_epochs_mean(
    splits: Splits[Split],
) -> None:
    x = splits.train.x.clone()
    x[17] = math.inf
    damaged = Splits(Split(x, splits.train.y), splits.validation, splits.test)
    training = TrainingSpec(learning_rate=1e-12, batch_size=64, nan_recovery=0.01)
    hooks = RecordingHooks()
    train(make_job(epochs=1, training=training), damaged, task=TASK, hooks=hooks)
    assert hooks.reports[0].recovered_batches == 1
    # With steps this short the weights are those of the start.
    module = make_job().trial.model.build(seed=7)
    order = torch.randperm(200, generator=torch.Generator().manual_seed(7))
    counted = torch.cat([rows for rows in order.split(64) if 17 not in rows.tolist()])
    output = module(splits.train.x[counted])
    wanted = nn.functional.cross_entropy(output, splits.train.y[counted]).item()
    assert hooks.reports[0].train_loss == pytest.approx(wanted, rel=1e-6)


def test_a_recurrence_that_explodes_recovers_where_it_would_diverge(cache: Path) -> None:
    splits = PIXELS.load(DataSources(cache=cache))
    job = make_overflowing_job(nan_recovery=None)
    with pytest.raises(TrainingDiverged, match=r"epoch 1, batch \d+: .* is (inf|nan)"):
        train(job, splits, task=PIXELS, hooks=RecordingHooks())
    hooks = RecordingHooks()
    job = make_overflowing_job(nan_recovery=0.1)
    result = train(job, splits, task=PIXELS, hooks=hooks)
    assert (result.outcome, result.epochs_trained) == ("complete", 3)
    assert 0 < hooks.reports[0].recovered_batches < 10
    assert hooks.reports[-1].recovered_batches < hooks.reports[0].recovered_batches


def test_an_epoch_of_nothing_but_recoveries_is_the_end(splits: Splits[Split]) -> None:
    damaged = Splits(
        Split(splits.train.x * math.inf, splits.train.y), splits.validation, splits.test
    )
    training = TrainingSpec(batch_size=64, nan_recovery=0.1)
    hooks = RecordingHooks()
    with pytest.raises(TrainingDiverged, match=r"epoch 1: .* all 4 batches .* nan_recovery 0\.1"):
        train(make_job(training=training), damaged, task=TASK, hooks=hooks)
    assert hooks.reports == []


def norms_by_hand(state: dict[str, Tensor], x: Tensor, y: Tensor) -> tuple[float, float]:
    """`|dL/dh|` at both ends, sample by sample, of `h <- phi(W h + M x + b)` in doubles."""
    W, M, b, Y, c, start = (
        state[name].double().squeeze()
        for name in (
            "recurrent.weight",
            "inputs.0.weight",
            "inputs.0.bias",
            "readout.weight",
            "readout.bias",
            "initial_state",
        )
    )
    firsts: list[float] = []
    lasts: list[float] = []
    for sample, label in zip(x.double(), y, strict=True):
        first = start.clone().requires_grad_()
        h = first
        for step in sample:
            h = nn.functional.leaky_relu(W @ h + M @ step + b, 0.1)
        loss = -torch.log_softmax(Y @ h + c, dim=0)[label]
        at_first, at_last = torch.autograd.grad(loss, (first, h))
        firsts.append(float(at_first.norm()))
        lasts.append(float(at_last.norm()))
    return float(np.mean(firsts)), float(np.mean(lasts))


def test_gradients_of_an_epoch_are_those_of_its_last_batch(splits: Splits[Split]) -> None:
    hooks = RecordingHooks()
    job = make_job(epochs=2, checkpoint_seconds=0)
    train(job, splits, task=TASK, hooks=hooks)
    order = torch.Generator().manual_seed(7)
    for epoch, report in enumerate(hooks.reports):
        last = torch.randperm(200, generator=order).split(64)[-1]
        # Saved after every batch and every epoch; before the last of four batches is after three.
        before = from_bytes(hooks.saved[epoch * 5 + 2], job=job).model
        first, after = norms_by_hand(before, splits.train.x[last], splits.train.y[last])
        assert report.gradient_first == pytest.approx(first, rel=1e-4)
        assert report.gradient_last == pytest.approx(after, rel=1e-4)


def test_a_gradient_that_overflows_is_told_as_none(splits: Splits[Split]) -> None:
    last = int(torch.randperm(200, generator=torch.Generator().manual_seed(7))[-1])
    training = TrainingSpec(batch_size=64, nan_recovery=0.1)
    x = splits.train.x.clone()
    x[last] = math.inf
    damaged = Splits(Split(x, splits.train.y), splits.validation, splits.test)
    hooks = RecordingHooks()
    train(make_job(epochs=1, training=training), damaged, task=TASK, hooks=hooks)
    [report] = hooks.reports
    assert (report.gradient_first, report.gradient_last) == (None, None)
    assert report.recovered_batches == 1


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("optimizer", "rms_prop"),
        ("clip_norm", 0.0),
        ("clip_value", -1.0),
        ("nan_recovery", 0.0),
        ("nan_recovery", 1.5),
        ("clip_value", math.inf),
    ],
)
def test_settings_that_make_no_sense_are_refused(field: str, value: Any) -> None:
    with pytest.raises(ValidationError, match=field):
        TrainingSpec.model_validate({field: value})
