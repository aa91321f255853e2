"""Every architecture learns with every parametrization that fits it."""

import pytest
import torch
from torch.nn import functional as F

from models.architectures import Architecture
from models.model import ModelSpec, after_step, parameter_groups, penalty
from models.parametrizations import Family
from tests.conformance.model_specs import fitting, pair_name, pairs, specs


def losses(spec: ModelSpec, steps: int = 30) -> tuple[float, float]:
    """Loss in evaluation before and after some steps on whether a sum is positive."""
    x = torch.randn(32, 5, 3, generator=torch.Generator().manual_seed(0))
    y = x.sum((1, 2)).gt(0).long()
    model = spec.build(seed=0)
    optimizer = torch.optim.Adam(parameter_groups(model, 0.01))

    def loss() -> torch.Tensor:
        return F.cross_entropy(model(x), y)

    def evaluated() -> float:
        with torch.no_grad():
            model.eval()
            value = loss().item()
            model.train()
        return value

    before = evaluated()
    for _ in range(steps):
        optimizer.zero_grad()
        objective = loss()
        if (extra := penalty(model)) is not None:
            objective = objective + extra
        objective.backward()
        optimizer.step()
        after_step(model)
    return before, evaluated()


@pytest.mark.sampled
@pytest.mark.parametrize("pair", pairs(), ids=pair_name)
def test_training_reduces_the_loss(
    pair: tuple[type[Architecture], type[Family]],
) -> None:
    architecture, parametrization = pair
    base, *options = specs(architecture, parametrization)
    # Options of the architecture are the same to all parametrizations; thirty steps are not cheap.
    thorough = parametrization in fitting(architecture)[:2]
    for spec in (base, *options) if thorough else (base,):
        torch.manual_seed(0)  # of the dropout masks
        before, after = losses(spec)
        assert after < 0.75 * before, spec
