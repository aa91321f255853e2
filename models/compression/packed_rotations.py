"""Dense to `packed_rotations`: stages of rotations, each in turn the best for the others."""

import torch

from models.compression.polish import polish_
from models.compression.rotations import Stages, starting_angles
from models.compression.target import Target, sizes, weight_errors
from models.parametrizations.packed_rotations import PackedRotationsLinear

LEAST_GAIN = 1e-4
EXACT = 1e-12


def fit_packed_rotations_(linear: PackedRotationsLinear, target: Target) -> None:
    """Sweep over the stages from several starts at once, in place, and finish the best by L-BFGS.

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
    tried = len(starts)
    theta = starts.flatten(0, 1)
    goal = weight.repeat(tried, 1, 1)
    errors = weight_errors(goal, stages.product(theta))
    scale = sizes(goal)
    for _ in range(stages.sweeps()):
        stages.sweep_(theta, goal.mT)
        after = weight_errors(goal, stages.product(theta))
        settled = (after > (1 - LEAST_GAIN) * errors) | (after <= EXACT * scale)
        errors = after
        if bool(settled.all()):
            break
    best = errors.view(tried, -1).argmin(0)
    with torch.no_grad():
        linear.rotations.theta.copy_(
            theta.view(tried, len(weight), *theta.shape[1:])[best, torch.arange(len(weight))]
        )
    polish_(linear, weight)
