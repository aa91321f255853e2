"""The matrices of several layers, each layer in a form of its own."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, chain

import torch
from torch import Tensor

from models.ops.factors import DenseFactors, Factors, LowRankFactors


def joined(layers: Sequence[Factors], *, gates: int) -> Factors:
    """The matrices of all layers, `gates` of each; in one form where all layers have the same.

    What runs a stack of layers as a whole runs it then, too.
    """
    if len(layers) == 1:
        return layers[0]
    dense = [layer.weight for layer in layers if isinstance(layer, DenseFactors)]
    if len(dense) == len(layers):
        return DenseFactors(torch.cat(dense))
    thin = [layer for layer in layers if isinstance(layer, LowRankFactors)]
    if len(thin) == len(layers) and len({_shapes(layer) for layer in thin}) == 1:
        diagonals = [layer.diagonal for layer in thin if layer.diagonal is not None]
        return LowRankFactors(
            torch.cat([layer.left for layer in thin]),
            torch.cat([layer.right for layer in thin]),
            torch.cat(diagonals) if diagonals else None,
        )
    return LayeredFactors(tuple(layers), (gates,) * len(layers))


def _shapes(factors: LowRankFactors) -> tuple[torch.Size, torch.Size, bool]:
    return factors.left.shape, factors.right.shape, factors.diagonal is None


@dataclass(frozen=True, eq=False)
class LayeredFactors:
    """Stacks of matrices one after the other.

    No kernel takes them; what runs layer by layer takes each layer's own from `split`.
    """

    layers: tuple[Factors, ...]
    counts: tuple[int, ...]
    """How many matrices each stack has."""

    def select(self, start: int, stop: int) -> Factors:
        """The matrices start..stop-1 of all."""
        parts: list[Factors] = []
        counts: list[int] = []
        for layer, count, end in zip(
            self.layers, self.counts, accumulate(self.counts), strict=True
        ):
            low, high = max(start - end + count, 0), min(stop - end + count, count)
            if low < high:
                parts.append(layer.select(low, high))
                counts.append(high - low)
        return parts[0] if len(parts) == 1 else LayeredFactors(tuple(parts), tuple(counts))

    def split(self, size: int) -> list[Factors]:
        """All in parts of `size` matrices; layers that are taken whole are taken as they are."""
        return [self.select(start, start + size) for start in range(0, sum(self.counts), size)]

    def arrange(self, projections: Tensor) -> tuple[Tensor, ...]:
        """Addends `[B, G*out]`, one per step."""
        return projections.unbind(0)

    def advance(self, state: Tensor, addend: Tensor | None = None) -> tuple[Tensor, ...]:
        """`state W_g^T + addend_g` for each g; `addend` is `[B, G*out]`."""
        if addend is None:
            return tuple(chain.from_iterable(layer.advance(state) for layer in self.layers))
        width = addend.shape[-1] // sum(self.counts)
        parts = torch.split(addend, [count * width for count in self.counts], dim=-1)
        return tuple(
            chain.from_iterable(
                layer.advance(state, layer.arrange(part.unsqueeze(0))[0])
                for layer, part in zip(self.layers, parts, strict=True)
            )
        )

    def advance_each(self, states: Tensor, addends: Tensor) -> tuple[Tensor, ...]:
        """`states_g W_g^T + addends_g` for each g; `states` is `[G, B, in]`, `addends` alike."""
        counts = list(self.counts)
        # A single number is an addend for all.
        parts = torch.split(addends, counts) if addends.dim() else [addends] * len(counts)
        return tuple(
            chain.from_iterable(
                layer.advance_each(part, addend)
                for layer, part, addend in zip(
                    self.layers, torch.split(states, counts), parts, strict=True
                )
            )
        )
