"""Dense to `factorized_svd`: singular vectors as images of skew matrices."""

import torch
from torch import Tensor

from models.compression.orthogonal.rotation_planes import planes_of
from models.compression.target import Target
from models.errors import ConversionError
from models.math.linalg import determinant, singular_values, solve, svd
from models.math.orthogonal_maps import CAYLEY, skew_positions
from models.parametrizations.factorized_svd import FactorizedSvdLinear

TRIED_SIGNS = 32
_TRIED_ORDERS = 32
_FAR_ENOUGH = 1e-3
"""From the eigenvalue -1: the least singular value of `I + Q`."""


def fit_factorized_svd_(linear: FactorizedSvdLinear, target: Target) -> None:
    """Singular values moved into the margin, and rotations of the singular vectors, in place.

    Nearest for a positive determinant. For a negative one the smallest singular value's sign is
    lost, since rotations and positive values have no other determinant: the nearest member again.
    `U E` and `V E` serve as well as U and V for every diagonal E of signs, and so they do in any
    other order of their columns; those are taken for which neither has an eigenvalue close to -1,
    which the Cayley transform does not reach.

    Raises:
        ConversionError: it reaches none that was tried.
    """
    generator = torch.Generator().manual_seed(0)
    invert = _inverse_cayley if linear.orthogonal_map is CAYLEY else _logarithm
    positions = skew_positions(linear.in_features)
    for place, matrix in enumerate(target.weight):
        left, values, right = svd(matrix)
        if float(determinant(left @ right)) < 0:
            left[:, -1].neg_()
            values[-1].neg_()
        left, right, values = _apart(left, right.mT, values, generator=generator)
        with torch.no_grad():
            linear.u[place] = invert(left).flatten()[positions]
            linear.v[place] = invert(right).flatten()[positions]
            if linear.p is not None:
                linear.p[place] = linear.spectrum.parameters(values)


def _apart(
    u: Tensor, v: Tensor, values: Tensor, *, generator: torch.Generator
) -> tuple[Tensor, Tensor, Tensor]:
    """The same matrix by rotations that are away from the eigenvalue -1, as they come if they are.

    Of diagonal matrices and permutations many orders lead there, whatever the signs are.
    """
    best = (-1.0, u, v, values)
    order = torch.arange(len(u))
    for _ in range(_TRIED_ORDERS):
        found = _signed(u[:, order], v[:, order], generator=generator)
        best = max(best, (*found, values[order]), key=lambda tried: tried[0])
        if best[0] >= _FAR_ENOUGH:
            break
        order = torch.randperm(len(u), generator=generator)
    if best[0] < _FAR_ENOUGH:
        raise ConversionError(
            "no order of its singular vectors that was tried is a Cayley transform; "
            "orthogonal_map 'exponential' reaches all"
        )
    return best[1:]


def _signed(u: Tensor, v: Tensor, *, generator: torch.Generator) -> tuple[float, Tensor, Tensor]:
    """How far from the eigenvalue -1 `U E` and `V E`, both rotations, are with the best E; they."""
    size = len(u)
    identity = torch.eye(size, dtype=u.dtype)
    signs = torch.randint(0, 2, (TRIED_SIGNS, size), generator=generator).to(u.dtype) * 2 - 1
    signs[0] = 1
    turned = float(determinant(u)) < 0
    wrong = (signs.prod(-1) < 0) != turned
    signs[wrong, -1] *= -1
    sides = torch.stack((u, v)).unsqueeze(1) * signs.unsqueeze(-2)
    distance = singular_values(identity + sides)[..., -1].amin(0)
    best = int(distance.argmax())
    return float(distance[best]), sides[0, best], sides[1, best]


def _inverse_cayley(rotation: Tensor) -> Tensor:
    """The skew A with `(I + A)^{-1} (I - A) = Q`: the transform is its own inverse."""
    identity = torch.eye(len(rotation), dtype=rotation.dtype)
    skew = solve(identity + rotation, identity - rotation)
    return (skew - skew.mT) / 2


def _logarithm(rotation: Tensor) -> Tensor:
    """A skew A with `e^A = Q`, plane by plane; lines that are turned around make planes of pi."""
    skew = torch.zeros_like(rotation)
    turned: list[Tensor] = []
    for plane in planes_of(rotation):
        if plane.reflectors == 2:
            a, b = plane.basis.unbind(1)
            skew += plane.angle * (torch.outer(b, a) - torch.outer(a, b))
        elif plane.reflectors:
            turned.append(plane.basis[:, 0])
    for a, b in zip(turned[::2], turned[1::2], strict=True):
        skew += torch.pi * (torch.outer(b, a) - torch.outer(a, b))
    return skew
