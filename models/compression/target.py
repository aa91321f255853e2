"""What a slot is to hold: plain matrices, and what is known of the vectors that they read."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from models.errors import ConversionError
from models.linear import StructuredLinear
from models.math.linalg import symmetric_eigen
from models.spec import Slot

SMALLEST_MOMENT = 1e-6
"""Directions that a calibration batch never showed count as this share of an average one."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Target:
    """The matrices of a slot, in double precision."""

    slot: Slot
    weight: Tensor
    """W `[G, out, in]`"""
    moments: Tensor | None = None
    """`E[x x^T]` `[G, in, in]` of the vectors x that each matrix reads; None: all alike."""
    earlier: StructuredLinear | None = None
    """A member of the same family, with counts no larger, that the result must not fall behind."""

    def check(self, name: str) -> None:
        """Refuse matrices that nothing can be near to.

        Raises:
            ConversionError: names the matrices and where the first bad entry is.
        """
        expected = (self.slot.num_matrices, self.slot.out_features, self.slot.in_features)
        if tuple(self.weight.shape) != expected:
            raise ConversionError(
                f"{name} has shape {list(self.weight.shape)}; allowed is {list(expected)}"
            )
        refuse_not_finite(name, self.weight)
        if self.moments is not None:
            refuse_not_finite(f"what {name} read of the calibration batch", self.moments)

    def by_layer(self, earlier: Sequence[StructuredLinear | None]) -> "Iterator[Target]":
        """The target of each layer alone, with what that must not fall behind."""
        slot, gates = replace(self.slot, layers=1), self.slot.gates
        weights = torch.split(self.weight, gates)
        moments = (
            [None] * len(weights) if self.moments is None else torch.split(self.moments, gates)
        )
        for weight, moment, before in zip(weights, moments, earlier, strict=True):
            yield Target(slot=slot, weight=weight, moments=moment, earlier=before)

    def weighting(self) -> tuple[Tensor, Tensor] | None:
        """`C^{1/2}` and `C^{-1/2}` `[G, in, in]` of the moments C, or None without any."""
        return None if self.moments is None else roots(self.moments)


def refuse_not_finite(name: str, tensor: Tensor) -> None:
    """Refuse NaN and infinities.

    Raises:
        ConversionError: names the tensor and the first entry that is no number.
    """
    bad = (~torch.isfinite(tensor)).nonzero()
    if len(bad):
        place = [int(index) for index in bad[0]]
        raise ConversionError(
            f"{name} has {float(tensor[tuple(place)])} at {place} ({len(bad)} of "
            f"{tensor.numel()} entries are not finite); allowed are finite numbers"
        )


def roots(moments: Tensor) -> tuple[Tensor, Tensor]:
    """`C^{1/2}` and `C^{-1/2}` of second moments C `[..., n, n]`, kept off singular."""
    values, vectors = symmetric_eigen(moments)
    values = values.clamp(min=0)
    floor = values.mean(-1, keepdim=True) * SMALLEST_MOMENT
    # Moments that are all 0 weigh every direction alike.
    values = torch.where(floor > 0, values + floor, torch.ones_like(values))
    root = values.sqrt().unsqueeze(-2)
    return (vectors * root) @ vectors.mT, (vectors / root) @ vectors.mT


def sizes(matrices: Tensor) -> Tensor:
    """`|W_g|_F` `[G]`."""
    return matrices.flatten(1).square().sum(-1).sqrt()


def weight_errors(weight: Tensor, approximation: Tensor) -> Tensor:
    """`|W_g - A_g|_F` `[G]`."""
    return sizes(weight - approximation)
