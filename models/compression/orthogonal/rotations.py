"""Angles of packed rotations for given matrices, a stage at a time.

A product of stages is `P_{K-1} ... P_1 P_0` with angles `[G, K, floor(n / 2)]`, see
`models.math.rotations`; all is in double precision.
"""

import torch
from torch import Tensor

from models.compression.target import sizes
from models.errors import ConversionError
from models.kernels.choice import kernels_take
from models.kernels.rotations import rotations_sweep_
from models.math.rotations import circle_partners, pair_places, rotation_product
from models.parametrizations.parts.packed_angles import PackedAngles

RESTARTS = 5
LEAST_GAIN = 1e-4
"""The share of the error by which a sweep has to lower it for another to follow."""
EXACT = 1e-12
"""The relative error from which on a target counts as met."""
FIRST_SWEEPS = 8
"""After so many, the best start is the one to go on with."""
MOST_SWEEPS = 60
FEWEST_SWEEPS = 4
_STAGES_IN_ALL = 1000


class Stages:
    """The schedule of `count` stages of R^n."""

    def __init__(self, size: int, count: int) -> None:
        self.size = size
        self.count = count
        self.partners = circle_partners(size, count)
        self._places, self._signs = pair_places(self.partners)
        coordinate = torch.arange(size)
        # Pairs stand in the order of their larger coordinates.
        self.first = torch.stack(
            [partner[coordinate[partner < coordinate]] for partner in self.partners]
        )
        self.second = torch.stack([coordinate[partner < coordinate] for partner in self.partners])

    def sweeps(self) -> int:
        """How many sweeps are worth their time: fewer over more stages, where L-BFGS is faster."""
        return min(max(_STAGES_IN_ALL // self.count, FEWEST_SWEEPS), MOST_SWEEPS)

    def product(self, angles: Tensor) -> Tensor:
        """`[G, n, n]`."""
        return rotation_product(self._signed(angles), self.partners)

    def sweep_(self, angles: Tensor, matrix: Tensor, product: Tensor) -> None:
        """Turn every stage once to the best there is with the others as they are, in place.

        Best is what makes `tr(X Q)` largest for X = `matrix` and Q = `product` `[G, n, n]`, that of
        the angles as they are given. With `X Q = X A P B` and `C = B X A` the pair (a, b) of P has
        `tan(angle) = (C_ba - C_ab) / (C_aa + C_bb)`.
        """
        c = matrix @ product
        if kernels_take(c, (torch.float64,)):
            signed = self._signed(angles)
            rotations_sweep_(c, signed, self.partners)
            angles.copy_(signed.gather(2, self.first.expand_as(angles)))
            return
        # Before stage 0, B = I and A is the product of all others: A = Q P_0^T.
        for k in range(self.count):
            c = self._turn_columns(c, angles, k)
            a, b = self.first[k], self.second[k]
            angles[:, k] = torch.atan2(c[:, b, a] - c[:, a, b], c[:, a, a] + c[:, b, b])
            c = self._turn_rows(c, angles, k)

    def _signed(self, angles: Tensor) -> Tensor:
        """Each coordinate's angle, `[G, K, n]`."""
        places = self._places.expand(angles.shape[0], -1, -1)
        return torch.gather(angles, 2, places) * self._signs

    def _turn_rows(self, c: Tensor, angles: Tensor, k: int) -> Tensor:
        """`P_k C`."""
        spread = angles[:, k].index_select(1, self._places[k]) * self._signs[k]
        turned = c.index_select(1, self.partners[k])
        return c * spread.cos().unsqueeze(-1) + turned * spread.sin().unsqueeze(-1)

    def _turn_columns(self, c: Tensor, angles: Tensor, k: int) -> Tensor:
        """`C P_k^T`, which is `(P_k C^T)^T`."""
        spread = angles[:, k].index_select(1, self._places[k]) * self._signs[k]
        turned = c.index_select(2, self.partners[k])
        return c * spread.cos().unsqueeze(-2) + turned * spread.sin().unsqueeze(-2)


def starting_angles(
    angles: PackedAngles, earlier: PackedAngles | None, *, generator: torch.Generator
) -> Tensor:
    """Starts `[k, G, K, floor(n / 2)]`: 0, random ones, and the earlier ones with stages of 0."""
    shape = angles.theta.shape
    starts = [torch.zeros(shape, dtype=torch.float64)]
    for _ in range(RESTARTS):
        uniform = torch.rand(shape, generator=generator, dtype=torch.float64)
        starts.append(2 * torch.pi * uniform)
    if earlier is not None:
        before = earlier.theta.detach().double()
        if before.shape[1] > shape[1]:
            raise ConversionError(
                f"the earlier solution has {before.shape[1]} stages; allowed are at most {shape[1]}"
            )
        starts.append(torch.nn.functional.pad(before, (0, 0, 0, shape[1] - before.shape[1])))
    return torch.stack(starts)


def have_settled(errors: Tensor, before: Tensor, goal: Tensor) -> bool:
    """Whether no matrix of `goal` `[G, n, n]` gained by the last sweep; errors are `[G]`."""
    exact = errors <= EXACT * sizes(goal)
    return bool(((errors > (1 - LEAST_GAIN) * before) | exact).all())


def best_starts(errors: Tensor, *found: Tensor) -> list[Tensor]:
    """Of what was found from k starts for G matrices, `[k * G, ...]`, the best one for each.

    `errors` is `[k, G]`.
    """
    num_matrices = errors.shape[1]
    best = errors.argmin(0) * num_matrices + torch.arange(num_matrices)
    return [each[best] for each in found]
