"""Dense to `packed_rotations`: stages of rotations, each in turn the best for the others."""

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
from models.parametrizations.packed_rotations import PackedRotationsLinear


def fit_packed_rotations_(linear: PackedRotationsLinear, target: Target) -> None:
    """Sweep over the stages from several starts, go on with the best, and finish by L-BFGS.

    No sweep makes the error larger, and the earlier solution is a start. Rotations have determinant
    1: from an orthogonal matrix of determinant -1 the distance is at least 2.
    """
    weight, angles = target.weight, linear.rotations
    stages = Stages(angles.size, angles.count)
    earlier = target.earlier
    starts = starting_angles(
        angles,
        earlier.rotations if isinstance(earlier, PackedRotationsLinear) else None,
        generator=torch.Generator().manual_seed(0),
    )
    theta, errors = _swept(
        stages, starts.flatten(0, 1), weight.repeat(len(starts), 1, 1), sweeps=FIRST_SWEEPS
    )
    (theta,) = best_starts(errors.view(len(starts), -1), theta)
    theta, _ = _swept(stages, theta, weight, sweeps=stages.sweeps())
    with torch.no_grad():
        linear.rotations.theta.copy_(theta)
    polish_(linear, weight)


def _swept(stages: Stages, theta: Tensor, goal: Tensor, *, sweeps: int) -> tuple[Tensor, Tensor]:
    """Angles after so many sweeps, or fewer where they settle, and the errors then."""
    theta = theta.clone()
    product = stages.product(theta)
    errors = weight_errors(goal, product)
    for _ in range(sweeps):
        stages.sweep_(theta, goal.mT, product)
        product = stages.product(theta)
        after = weight_errors(goal, product)
        settled = have_settled(after, errors, goal)
        errors = after
        if settled:
            break
    return theta, errors
