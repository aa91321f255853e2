"""Each optimizer against its formula, written down in double precision; weight decay; state."""

from collections.abc import Callable
from typing import Any, get_args

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import nn

from models.model import parameter_groups
from search.training.optimizers import (
    OPTIMIZERS,
    decay_weights,
    make_optimizer,
    restore_state,
    state_of,
)
from search.training.stacks import stack_key
from search.training.trial_spec import OptimizerName, TrainingSpec
from tests.search.training_cases import MODELS, make_job

Array = NDArray[np.float64]
STEPS = 6
NAMES: tuple[OptimizerName, ...] = get_args(OptimizerName)


def adam(gradients: list[Array], rate: float) -> Array:
    m, v, moved = np.zeros(4), np.zeros(4), np.zeros(4)
    for t, g in enumerate(gradients, start=1):
        m, v = 0.9 * m + 0.1 * g, 0.999 * v + 0.001 * g**2
        moved -= rate * (m / (1 - 0.9**t)) / (np.sqrt(v / (1 - 0.999**t)) + 1e-8)
    return moved


def rmsprop(gradients: list[Array], rate: float, start: float = 0.0, eps: float = 1e-8) -> Array:
    v, moved = np.full(4, start), np.zeros(4)
    for g in gradients:
        v = 0.9 * v + 0.1 * g**2
        moved -= rate * g / (np.sqrt(v) + eps)
    return moved


def adagrad(gradients: list[Array], rate: float) -> Array:
    total, moved = np.zeros(4), np.zeros(4)
    for g in gradients:
        total = total + g**2
        moved -= rate * g / (np.sqrt(total) + 1e-10)
    return moved


def sgd(gradients: list[Array], rate: float) -> Array:
    return -rate * np.sum(gradients, axis=0)


FORMULAS: dict[OptimizerName, Callable[[list[Array], float], Array]] = {
    "adam": adam,
    "rmsprop": rmsprop,
    "adagrad": adagrad,
    "sgd": sgd,
}


class Weights(nn.Module):
    """Four numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.tensor([1.0, -2.0, 0.5, 0.0], dtype=torch.float64))


def gradients() -> list[Array]:
    rng = np.random.default_rng(3)
    scales = np.array([1e-3, 1.0, 30.0, 1.0])
    return [rng.normal(size=4) * scales for _ in range(STEPS)]


def take_steps(
    optimizer: torch.optim.Optimizer, weights: Weights, steps: list[Array], decay: float = 0.0
) -> Array:
    for gradient in steps:
        weights.w.grad = torch.from_numpy(gradient.copy())
        decay_weights(optimizer, decay)
        optimizer.step()
    return weights.w.detach().numpy().copy()


def test_every_name_of_the_spec_is_an_optimizer() -> None:
    assert set(OPTIMIZERS) == set(NAMES) == set(FORMULAS)


@pytest.mark.parametrize("name", NAMES)
def test_steps_follow_the_formula(name: OptimizerName) -> None:
    weights = Weights()
    start = weights.w.detach().numpy().copy()
    training = TrainingSpec(optimizer=name, learning_rate=0.01)
    moved = take_steps(make_optimizer(weights, training), weights, gradients()) - start
    np.testing.assert_allclose(moved, FORMULAS[name](gradients(), 0.01), rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize(("start", "eps"), [(1e-3, 0.0), (1e-3, 1e-8), (0.5, 1e-4), (0.0, 1e-4)])
def test_rmsprop_starts_where_it_is_told(start: float, eps: float) -> None:
    training = TrainingSpec(
        optimizer="rmsprop", learning_rate=0.01, rmsprop_start=start, rmsprop_eps=eps
    )
    weights = Weights()
    before = weights.w.detach().numpy().copy()
    moved = take_steps(make_optimizer(weights, training), weights, gradients()) - before
    wanted = rmsprop(gradients(), 0.01, start, eps)
    np.testing.assert_allclose(moved, wanted, rtol=1e-9, atol=1e-12)
    # A small gradient moves 1 / sqrt(0.9 v) times the rate, and not the rate's 3.16.
    first = take_steps(
        make_optimizer(weights, TrainingSpec(optimizer="rmsprop", rmsprop_start=1e-3)),
        weights,
        [np.full(4, 1e-6)],
    )
    np.testing.assert_allclose(moved + before - first, 3e-3 * 1e-6 / np.sqrt(9e-4), rtol=1e-3)


def test_averages_that_fade_away_divide_nothing_by_nothing() -> None:
    module = nn.Linear(2, 1, bias=False)
    before = module.weight.detach().clone()
    training = TrainingSpec(optimizer="rmsprop", rmsprop_start=1e-3, rmsprop_eps=0.0)
    optimizer = make_optimizer(module, training)
    for _ in range(2_000):
        module.weight.grad = torch.zeros_like(module.weight)
        optimizer.step()
    assert float(optimizer.state[module.weight]["square_avg"].max()) < 1e-40
    assert torch.equal(module.weight, before)


def test_rmsprop_without_a_start_and_without_eps_is_refused() -> None:
    with pytest.raises(ValueError, match="0 / 0; allowed is one of the two above 0"):
        TrainingSpec(optimizer="rmsprop", rmsprop_start=0.0, rmsprop_eps=0.0)
    # Nothing else changes what documents of trials say.
    assert not TrainingSpec().model_dump().keys() & {"rmsprop_start", "rmsprop_eps"}


def test_another_rmsprop_is_trained_alone() -> None:
    def key(seed: int, **fields: Any) -> str:
        return stack_key(make_job(seed=seed, training=TrainingSpec.model_validate(fields)))

    usual = {"optimizer": "rmsprop"}
    assert key(1, **usual) == key(2, **usual)
    assert key(1, **usual, rmsprop_start=1e-3) != key(2, **usual, rmsprop_start=1e-3)
    assert key(1, **usual, rmsprop_eps=1e-4) != key(2, **usual, rmsprop_eps=1e-4)
    # No other optimizer has these.
    assert key(1, rmsprop_start=1e-3) == key(2)


def test_decayed_adam_is_adamw() -> None:
    ours, theirs = Weights(), Weights()
    training = TrainingSpec(learning_rate=0.01, weight_decay=0.3)
    found = take_steps(make_optimizer(ours, training), ours, gradients(), decay=0.3)
    adamw = torch.optim.AdamW(theirs.parameters(), lr=0.01, weight_decay=0.3)
    np.testing.assert_array_equal(found, take_steps(adamw, theirs, gradients()))


@pytest.mark.parametrize("name", NAMES)
def test_decay_shrinks_by_the_learning_rate_and_moves_no_average(name: OptimizerName) -> None:
    still = [np.zeros(4)] * STEPS
    weights = Weights()
    start = weights.w.detach().numpy().copy()
    optimizer = make_optimizer(weights, TrainingSpec(optimizer=name, learning_rate=0.1))
    shrunk = take_steps(optimizer, weights, still, decay=0.5)
    np.testing.assert_allclose(shrunk, start * (1 - 0.1 * 0.5) ** STEPS, rtol=1e-12)
    averages = {
        key: value for key, value in state_of(optimizer, weights).items() if "step" not in key
    }
    assert all(not value.any() for value in averages.values())


@pytest.mark.parametrize("name", NAMES)
def test_decay_is_that_of_the_plain_rate_where_steps_are_scaled(name: OptimizerName) -> None:
    """Singular values behind a sigmoid step 1 / (2 r) times as far, and decay as all do."""
    module = MODELS["rnn-householder_svd"].build(seed=0)
    with torch.no_grad():
        module.get_parameter("recurrent.p").fill_(1.0)
    before = [parameter.detach().clone() for parameter in module.parameters()]
    optimizer = make_optimizer(module, TrainingSpec(optimizer=name, learning_rate=0.1))
    assert len({group["lr"] for group in optimizer.param_groups}) == 2
    # As in later epochs.
    for group in optimizer.param_groups:
        group["lr"] *= 0.5
    decay_weights(optimizer, 0.4)
    for parameter, start in zip(module.parameters(), before, strict=True):
        torch.testing.assert_close(parameter.detach(), start * (1 - 0.05 * 0.4))


@pytest.mark.parametrize("name", NAMES)
def test_learning_rates_of_their_own_are_kept(name: OptimizerName) -> None:
    module = MODELS["rnn-householder_svd"].build(seed=0)
    optimizer = make_optimizer(module, TrainingSpec(optimizer=name, learning_rate=0.01))
    wanted = {
        parameter: group["lr"]
        for group in parameter_groups(module, 0.01)
        for parameter in group["params"]
    }
    found = {
        parameter: group["lr"] for group in optimizer.param_groups for parameter in group["params"]
    }
    assert found == wanted
    assert set(found) == set(module.parameters())


@pytest.mark.parametrize("start", [0.0, 0.01])
@pytest.mark.parametrize("name", NAMES)
def test_state_given_to_a_new_optimizer_takes_the_same_next_steps(
    name: OptimizerName, start: float
) -> None:
    training = TrainingSpec(optimizer=name, learning_rate=0.01, rmsprop_start=start)
    steps: list[Any] = gradients()
    whole, first, second = Weights(), Weights(), Weights()
    wanted = take_steps(make_optimizer(whole, training), whole, steps)
    optimizer = make_optimizer(first, training)
    take_steps(optimizer, first, steps[:3])
    state = {key: value.clone() for key, value in state_of(optimizer, first).items()}
    second.load_state_dict(first.state_dict())
    resumed = make_optimizer(second, training)
    restore_state(resumed, second, state)
    # What was given stays the giver's: the state was copied.
    take_steps(optimizer, first, steps[3:])
    np.testing.assert_array_equal(take_steps(resumed, second, steps[3:]), wanted)


def test_state_of_a_parameter_that_is_not_there_is_refused() -> None:
    weights = Weights()
    with pytest.raises(KeyError, match="elsewhere"):
        restore_state(
            make_optimizer(weights, TrainingSpec()), weights, {"elsewhere/step": torch.zeros(())}
        )
