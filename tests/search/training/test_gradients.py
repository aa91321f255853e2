"""Clipping and recovery, gradient by gradient."""

import math

import numpy as np
import pytest
import torch
from torch import nn

from search.training.gradients import clip_gradients, shrink_instead
from search.training.trial_spec import TrainingSpec

GRADIENTS = ([[3.0, -0.5], [0.25, -8.0]], [0.0, 4.0])


def module_with(*gradients: object) -> nn.Linear:
    module = nn.Linear(2, 2)
    for parameter, gradient in zip(module.parameters(), gradients, strict=True):
        parameter.grad = torch.tensor(gradient)
    return module


def flat(module: nn.Module) -> np.ndarray:
    parts = [parameter.grad for parameter in module.parameters()]
    return np.concatenate([part.flatten().numpy() for part in parts if part is not None])


BEFORE = np.array([3.0, -0.5, 0.25, -8.0, 0.0, 4.0])


@pytest.mark.parametrize(
    ("value", "norm", "after"),
    [
        (None, None, BEFORE),
        (1.0, None, np.clip(BEFORE, -1, 1)),
        (None, 2.0, BEFORE * 2 / np.linalg.norm(BEFORE)),
        (None, 100.0, BEFORE),
        # By value first: the other way round no component would reach 1 any more.
        (1.0, 0.5, np.clip(BEFORE, -1, 1) * 0.5 / np.linalg.norm(np.clip(BEFORE, -1, 1))),
    ],
)
def test_components_are_cut_first_and_then_the_norm(
    value: float | None, norm: float | None, after: np.ndarray
) -> None:
    module = module_with(*GRADIENTS)
    told = clip_gradients(module, TrainingSpec(clip_value=value, clip_norm=norm))
    # torch divides by the norm + 1e-6.
    np.testing.assert_allclose(flat(module), after, rtol=3e-6)
    between = BEFORE if value is None else np.clip(BEFORE, -value, value)
    assert told == pytest.approx(np.linalg.norm(between), rel=1e-6)


def test_an_infinite_component_is_cut_by_value_and_no_other_way() -> None:
    gradients = ([[math.inf, 0.0], [0.0, -math.inf]], [0.0, 0.0])
    assert clip_gradients(module_with(*gradients), TrainingSpec()) == math.inf
    module = module_with(*gradients)
    told = clip_gradients(module, TrainingSpec(clip_value=2.0, clip_norm=None))
    assert told == pytest.approx(math.sqrt(8))
    assert flat(module).tolist() == [2, 0, 0, -2, 0, 0]


def test_nan_is_cut_by_nothing() -> None:
    module = module_with([[math.nan, 0.0], [0.0, 0.0]], [0.0, 0.0])
    assert math.isnan(clip_gradients(module, TrainingSpec(clip_value=2.0)))


def test_recovery_points_every_trained_weight_at_zero() -> None:
    module = module_with([[math.nan, 0.0], [0.0, 0.0]], [0.0, math.inf])
    module.bias.grad = None
    frozen = nn.Parameter(torch.ones(2), requires_grad=False)
    module.register_parameter("frozen", frozen)
    shrink_instead(module, 0.1)
    assert frozen.grad is None
    for parameter in (module.weight, module.bias):
        assert parameter.grad is not None
        assert not parameter.grad.requires_grad
        torch.testing.assert_close(parameter.grad, 0.1 * parameter.detach(), rtol=0, atol=0)
