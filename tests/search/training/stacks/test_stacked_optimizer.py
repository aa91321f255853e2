"""A stack's steps are those of each trial by itself, also for parameters without a gradient."""

import math
from collections.abc import Sequence

import pytest
import torch
from torch import Tensor, nn

from search.training.gradients import clip_gradients, shrink_instead
from search.training.optimizers import OPTIMIZERS, decay_weights, make_optimizer
from search.training.stacks.stacked_optimizer import QUANTITIES, StackedOptimizer
from search.training.trial_spec import OptimizerName, TrainingSpec

SHAPES = [(3, 4), (5,), (2,)]
STEPS = 6
SOMETIMES, NEVER = 1, 2
"""The parameter that has a gradient in every other step, and the one that has none."""


def trainings_of(optimizer: OptimizerName) -> list[TrainingSpec]:
    return [
        TrainingSpec(optimizer=optimizer, learning_rate=0.01, weight_decay=0.5),
        TrainingSpec(
            optimizer=optimizer, learning_rate=0.02, weight_decay=0.1, nan_recovery=0.1, clip_norm=1
        ),
        TrainingSpec(optimizer=optimizer, learning_rate=0.03, nan_recovery=0.3, clip_value=0.5),
    ]


def drawn_gradients(step: int, generator: torch.Generator) -> list[Tensor | None]:
    """Of three members; the second one's has a NaN in the third step."""
    found: list[Tensor | None] = [torch.randn(3, *shape, generator=generator) for shape in SHAPES]
    if step == 2:
        assert found[0] is not None
        found[0][1, 0, 0] = torch.nan
    found[NEVER] = None
    if step % 2:
        found[SOMETIMES] = None
    return found


class Alone:
    """A member with torch's optimizer."""

    def __init__(self, training: TrainingSpec, parameters: Sequence[Tensor]) -> None:
        self.training, self.module = training, nn.ParameterList(one.clone() for one in parameters)
        self.optimizer = make_optimizer(self.module, training)

    def step(self, gradients: Sequence[Tensor | None], total: float) -> None:
        """As the engine of one member takes it."""
        norm = math.nan
        for parameter, gradient in zip(self.module, gradients, strict=True):
            parameter.grad = None if gradient is None else gradient.clone()
        if math.isfinite(total):
            norm = clip_gradients(self.module, self.training)
        if not math.isfinite(norm):
            assert self.training.nan_recovery is not None
            shrink_instead(self.module, self.training.nan_recovery)
        decay_weights(self.optimizer, self.training.weight_decay)
        self.optimizer.step()  # pyright: ignore[reportUnknownMemberType] -- untyped


@pytest.mark.parametrize("backend", [None, "torch"])
@pytest.mark.parametrize("optimizer", list(OPTIMIZERS))
def test_parameters_without_gradients_are_as_they_are_alone(
    optimizer: OptimizerName, backend: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    if backend is not None:
        monkeypatch.setenv("REFLECTORY_BACKEND", backend)
    generator = torch.Generator().manual_seed(0)
    trainings = trainings_of(optimizer)
    parameters = [torch.randn(3, *shape, generator=generator) for shape in SHAPES]
    alone = [Alone(one, [p[place] for p in parameters]) for place, one in enumerate(trainings)]
    moments = [[torch.zeros_like(one) for one in parameters] for _ in QUANTITIES[optimizer]]
    counts = torch.zeros(len(SHAPES), 3, dtype=torch.int64)
    together = StackedOptimizer(trainings, moments=moments, steps=counts)
    together.set_rates([one.learning_rate for one in trainings], [[1.0] * 3] * len(SHAPES))
    for step in range(STEPS):
        gradients = drawn_gradients(step, generator)
        totals = torch.ones(3)
        # The third member's loss overflows where one parameter has no gradient, and where it has.
        totals[2] = torch.inf if step in (3, 4) else 1
        together.step(parameters, gradients, totals)
        for place, one in enumerate(alone):
            own = [None if gradient is None else gradient[place] for gradient in gradients]
            one.step(own, float(totals[place]))
    for place, one in enumerate(alone):
        for number, (found, wanted) in enumerate(zip(parameters, one.module, strict=True)):
            torch.testing.assert_close(found[place], wanted.detach(), rtol=1e-5, atol=1e-6)
            state = one.optimizer.state[wanted]
            for quantity, kept in zip(QUANTITIES[optimizer], moments, strict=True):
                expected = state.get(quantity, torch.zeros_like(wanted))
                torch.testing.assert_close(kept[number][place], expected, rtol=1e-5, atol=1e-7)
            if QUANTITIES[optimizer]:
                assert counts[number, place] == state.get("step", 0)
    assert counts.tolist() == [[6, 6, 6], [3, 3, 4], [0, 1, 2]]


@pytest.mark.parametrize("backend", [None, "torch"])
@pytest.mark.parametrize("optimizer", list(OPTIMIZERS))
def test_decay_is_that_of_the_plain_rate_where_steps_are_scaled(
    optimizer: OptimizerName, backend: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    if backend is not None:
        monkeypatch.setenv("REFLECTORY_BACKEND", backend)
    trainings = trainings_of(optimizer)
    start = [torch.ones(3, *shape) for shape in SHAPES]
    parameters = [one.clone() for one in start]
    together = StackedOptimizer(
        trainings,
        moments=[[torch.zeros_like(one) for one in start] for _ in QUANTITIES[optimizer]],
        steps=torch.zeros(len(SHAPES), 3, dtype=torch.int64),
    )
    scales = [[1.0, 1.0, 1.0], [500.0, 5.0, 1.0], [1.0, 50.0, 2.0]]
    together.set_rates([one.learning_rate for one in trainings], scales)
    still: list[Tensor | None] = [torch.zeros_like(one) for one in start]
    still[NEVER] = None
    together.step(parameters, still, torch.ones(3))
    left = torch.tensor([1 - one.learning_rate * one.weight_decay for one in trainings])
    for found, before in zip(parameters, start, strict=True):
        torch.testing.assert_close(found, before * left.view(3, *[1] * (before.dim() - 1)))
