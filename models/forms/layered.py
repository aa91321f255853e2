"""The matrices of several layers, each layer in a form of its own."""

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain, islice
from typing import ClassVar

import torch
from torch import Tensor

from models.forms.dense import DenseForm
from models.forms.form import Form
from models.forms.low_rank import LowRankForm
from models.forms.rotated import RotatedForm


def joined(layers: Sequence[Form], *, gates: int) -> Form:
    """The matrices of all layers, `gates` of each; in one form where all layers have the same.

    What runs a stack of layers as a whole runs it then, too.
    """
    if len(layers) == 1:
        return layers[0]
    shapes = {(layer.structure(), *(part.shape for part in layer.tensors())) for layer in layers}
    if len(shapes) == 1 and isinstance(layers[0], DenseForm | LowRankForm | RotatedForm):
        parts = zip(*(layer.tensors() for layer in layers), strict=True)
        return layers[0].rebuild([torch.cat(part) for part in parts])
    return LayeredForm(tuple(layers), (gates,) * len(layers))


@dataclass(frozen=True, eq=False)
class LayeredForm(Form):
    """Stacks of matrices one after the other.

    No kernel takes them; what runs layer by layer takes each layer's own from `split`.
    """

    name: ClassVar[str] = "layered"

    layers: tuple[Form, ...]
    counts: tuple[int, ...]
    """How many matrices each stack has."""

    def select(self, start: int, stop: int) -> Form:
        """The matrices start..stop-1 of all."""
        parts: list[Form] = []
        counts: list[int] = []
        for layer, count, end in zip(
            self.layers, self.counts, accumulate(self.counts), strict=True
        ):
            low, high = max(start - end + count, 0), min(stop - end + count, count)
            if low < high:
                parts.append(layer.select(low, high))
                counts.append(high - low)
        return parts[0] if len(parts) == 1 else LayeredForm(tuple(parts), tuple(counts))

    def split(self, size: int) -> list[Form]:
        """All in parts of `size` matrices; layers that are taken whole are taken as they are."""
        return [self.select(start, start + size) for start in range(0, sum(self.counts), size)]

    def addends(self, projections: Tensor) -> tuple[Tensor, ...]:
        """Addends `[B, G*out]`, one per step."""
        return projections.unbind(0)

    def matmul(self, x: Tensor, addend: Tensor | None = None) -> tuple[Tensor, ...]:
        """`x W_g^T + addend_g` for each g; `addend` is `[B, G*out]`."""
        if addend is None:
            return tuple(chain.from_iterable(layer.matmul(x) for layer in self.layers))
        width = addend.shape[-1] // sum(self.counts)
        parts = torch.split(addend, [count * width for count in self.counts], dim=-1)
        return tuple(
            chain.from_iterable(
                layer.matmul(x, layer.addends(part.unsqueeze(0))[0])
                for layer, part in zip(self.layers, parts, strict=True)
            )
        )

    def matmul_each(self, x: Tensor, addends: Tensor) -> tuple[Tensor, ...]:
        """`x_g W_g^T + addends_g` for each g; x is `[G, B, in]`, `addends` alike."""
        counts = list(self.counts)
        # A single number is an addend for all.
        parts = torch.split(addends, counts) if addends.dim() else [addends] * len(counts)
        return tuple(
            chain.from_iterable(
                layer.matmul_each(part, addend)
                for layer, part, addend in zip(
                    self.layers, torch.split(x, counts), parts, strict=True
                )
            )
        )

    def tensors(self) -> tuple[Tensor, ...]:
        """Those of each layer, the first layer's first."""
        return tuple(chain.from_iterable(layer.tensors() for layer in self.layers))

    def rebuild(self, tensors: Sequence[Tensor]) -> "LayeredForm":
        """The same layers of other tensors."""
        others: Iterator[Tensor] = iter(tensors)
        layers = (
            layer.rebuild(tuple(islice(others, len(layer.tensors())))) for layer in self.layers
        )
        return LayeredForm(tuple(layers), self.counts)

    def multiply_adds(self) -> int:
        """The sum over the layers."""
        return sum(layer.multiply_adds() for layer in self.layers)

    def whole(self) -> Tensor:
        """Those of the layers, one after the other."""
        return torch.cat([layer.whole() for layer in self.layers])

    def structure(self) -> Hashable:
        """Those of the layers."""
        return LayeredForm, self.counts, tuple(layer.structure() for layer in self.layers)

    def for_loop(self) -> Form:
        """Each layer in its own."""
        return LayeredForm(tuple(layer.for_loop() for layer in self.layers), self.counts)

    def for_inference(self) -> Form:
        """Each layer in its own faster form."""
        return LayeredForm(tuple(layer.for_inference() for layer in self.layers), self.counts)
