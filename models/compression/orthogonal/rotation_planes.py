"""The planes in which an orthogonal matrix rotates, and its best approximation by few reflectors.

Note [Planes]
The symmetric part `S = (Q + Q^T) / 2` has the cosine of each plane's angle as an eigenvalue, twice,
and its eigenvectors are orthonormal to rounding. Eigenvalues that are all but equal may have their
vectors mixed: within such a group the skew part `K = (Q - Q^T) / 2` tells the planes apart, as the
Hermitian `-i K` has an eigenvalue sin(angle) > 0 for each of them, with eigenvector
`(a - i b) / sqrt(2)` for the plane of a and b in which Q turns a towards b.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from models.math.linalg import hermitian_eigen, svd, symmetric_eigen

_SAME_COSINE = 1e-7
_NO_TURN = 1e-9


@dataclass(frozen=True, eq=False)
class Plane:
    """A plane that Q turns by an angle in (0, pi), or a line that it keeps or turns around."""

    basis: Tensor
    """Orthonormal `[n, 2]`, of which Q turns the first towards the second; `[n, 1]` for a line."""
    angle: float
    """In [0, pi]; 0 or pi for a line."""

    @property
    def reflectors(self) -> int:
        """How many reflectors make Q here: a line that is kept needs none."""
        return 0 if self.angle == 0 else self.basis.shape[1]

    def vectors(self) -> list[Tensor]:
        """Unit vectors whose reflections, the last one first, are Q here."""
        if self.reflectors < 2:
            return [self.basis[:, 0]][: self.reflectors]
        a, b = self.basis.unbind(1)
        return [math.cos(self.angle / 2) * a + math.sin(self.angle / 2) * b, a]


def planes_of(orthogonal: Tensor) -> list[Plane]:
    """All planes and lines of an orthogonal matrix Q `[n, n]`, the most turned first.

    See Note [Planes].
    """
    cosines, vectors = symmetric_eigen((orthogonal + orthogonal.mT) / 2)
    breaks = (cosines[1:] - cosines[:-1] > _SAME_COSINE).nonzero().flatten() + 1
    starts = [0, *(int(place) for place in breaks)]
    stops = [*starts[1:], len(cosines)]
    found: list[Plane] = []
    for start, stop in zip(starts, stops, strict=True):
        found += _planes_of_group(orthogonal, vectors[:, start:stop])
    return sorted(found, key=lambda plane: plane.angle, reverse=True)


def _planes_of_group(orthogonal: Tensor, basis: Tensor) -> list[Plane]:
    """The planes and lines within the span of eigenvectors `[n, d]` of one cosine."""
    inner = basis.mT @ orthogonal @ basis
    skew = (inner - inner.mT) / 2
    sines, mixed = hermitian_eigen(torch.complex(torch.zeros_like(skew), -skew))
    turning = sines > _NO_TURN
    planes: list[Plane] = []
    for vector in mixed[:, turning].mT * math.sqrt(2):
        pair = torch.stack((vector.real, -vector.imag), -1)
        cosine = float((pair.mT @ inner @ pair).diagonal().mean())
        sine = float(pair[:, 1] @ inner @ pair[:, 0])
        planes.append(Plane(basis @ pair, math.atan2(sine, cosine)))
    # Lines are what the planes leave.
    taken = torch.cat([plane.basis for plane in planes], -1) if planes else basis[:, :0]
    rest = basis.mT @ taken
    _, values, free = svd(rest.mT if rest.shape[1] else rest.new_zeros(1, rest.shape[0]), full=True)
    lines = basis @ free.mT[:, int((values > 0.5).sum()) :]
    for line in lines.mT:
        turned = float(line @ orthogonal @ line) < 0
        planes.append(Plane(line.unsqueeze(-1), math.pi if turned else 0.0))
    return planes


def best_reflections(weight: Tensor, count: int) -> Tensor:
    """Unit vectors `[k, n]`, k <= count, whose reflections come nearest to a square W `[n, n]`.

    The product is `H(x_0) H(x_1) ... H(x_{k-1})`. It is the identity but for those planes of the
    nearest orthogonal matrix Q where turning gains most for its reflectors: with `W = Q P`, P the
    positive polar factor, a plane gains `2 (1 - cos) tr P` of squared error, tr P taken over it. A
    lone last reflector goes to a line, or to a plane where it still gains. For an orthogonal W
    (P = I) nothing with as many reflectors is nearer whenever the count fits whole planes. A larger
    count never gives a larger error.
    """
    left, values, right = svd(weight)
    orthogonal = left @ right
    positive = (right.mT * values) @ right
    candidates = [
        (plane, 2 * (1 - math.cos(plane.angle)) * _trace(positive, plane.basis))
        for plane in planes_of(orthogonal)
        if plane.reflectors
    ]
    candidates.sort(key=lambda candidate: candidate[1] / candidate[0].reflectors, reverse=True)
    chosen: list[Tensor] = []
    for place, (plane, _) in enumerate(candidates):
        room = count - len(chosen)
        if plane.reflectors <= room:
            chosen += plane.vectors()
        else:
            if room:
                chosen += _lone_reflection(weight, [other for other, _ in candidates[place:]])
            break
    return torch.stack(chosen) if chosen else weight.new_zeros(0, weight.shape[0])


def _trace(matrix: Tensor, basis: Tensor) -> float:
    return float((basis * (matrix @ basis)).sum())


def _lone_reflection(weight: Tensor, planes: list[Plane]) -> list[Tensor]:
    """The one reflection within one of the planes that brings the identity nearest to W, if any.

    `|W - H(x)|^2` changes by `4 x^T W x` against the identity's.
    """
    best, gain = None, 0.0
    for plane in planes:
        inner = plane.basis.mT @ weight @ plane.basis
        values, vectors = symmetric_eigen((inner + inner.mT) / 2)
        if float(values[0]) < gain:
            best, gain = plane.basis @ vectors[:, 0], float(values[0])
    return [] if best is None else [best]
