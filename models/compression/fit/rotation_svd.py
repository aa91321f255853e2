"""Dense to `rotation_svd`: stages of rotations on both sides, and free singular values."""

import torch
from torch import Tensor

from models.compression.fit.polish import polish_
from models.compression.orthogonal.rotations import (
    FIRST_SWEEPS,
    Stages,
    best_starts,
    have_settled,
    starting_angles,
)
from models.compression.target import Target, weight_errors
from models.parametrizations.rotation_svd import RotationSvdLinear


def fit_rotation_svd_(linear: RotationSvdLinear, target: Target) -> None:
    """Sweep over the stages of both sides from several starts, go on with the best; then L-BFGS.

    Between the sides `s = diag(U^T W V)`, of any sign. No sweep makes the error larger, and the
    earlier solution is a start.
    """
    generator = torch.Generator().manual_seed(0)
    earlier = target.earlier if isinstance(target.earlier, RotationSvdLinear) else None
    sides = (
        starting_angles(linear.u, earlier.u if earlier else None, generator=generator),
        starting_angles(linear.v, earlier.v if earlier else None, generator=generator),
    )
    stages = Stages(linear.u.size, linear.u.count), Stages(linear.v.size, linear.v.count)
    tried, weight = len(sides[0]), target.weight
    u, v = (side.flatten(0, 1) for side in sides)
    u, v, s, errors = _swept(stages, u, v, weight.repeat(tried, 1, 1), sweeps=FIRST_SWEEPS)
    u, v = best_starts(errors.view(tried, -1), u, v)
    sweeps = max(stages, key=lambda side: side.count).sweeps()
    u, v, s, _ = _swept(stages, u, v, weight, sweeps=sweeps)
    with torch.no_grad():
        for parameter, found in ((linear.u.theta, u), (linear.v.theta, v), (linear.s, s)):
            parameter.copy_(found)
    polish_(linear, weight)


def _swept(
    stages: tuple[Stages, Stages], u: Tensor, v: Tensor, goal: Tensor, *, sweeps: int
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Angles and s after so many sweeps, or fewer where they settle, and the errors then."""
    u, v = u.clone(), v.clone()
    left, right = stages[0].product(u), stages[1].product(v)
    errors, s = _fitted(goal, left, right)
    for _ in range(sweeps):
        stages[0].sweep_(u, (right * s.unsqueeze(-2)).mT @ goal.mT, left)
        left = stages[0].product(u)
        s = _values(goal, left, right)
        stages[1].sweep_(v, (left * s.unsqueeze(-2)).mT @ goal, right)
        right = stages[1].product(v)
        after, s = _fitted(goal, left, right)
        settled = have_settled(after, errors, goal)
        errors = after
        if settled:
            break
    return u, v, s, errors


def _values(weight: Tensor, left: Tensor, right: Tensor) -> Tensor:
    """The best s for given sides, `diag(U^T W V)`."""
    return (left * (weight @ right)).sum(-2)


def _fitted(weight: Tensor, left: Tensor, right: Tensor) -> tuple[Tensor, Tensor]:
    s = _values(weight, left, right)
    return weight_errors(weight, (left * s.unsqueeze(-2)) @ right.mT), s
