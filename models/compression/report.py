"""What a conversion lost and what it saved."""

import copy
from collections.abc import Sequence

import torch
from pydantic import Field
from torch import Tensor, nn

from models.linear import StructuredLinear
from models.model import ModelSpec
from models.spec import Slot, Spec


class LayerConversion(Spec):
    """The matrices of one layer in one slot."""

    slot: str = Field(description="path of the matrices in the network")
    layer: int = Field(description="index of the layer in the slot, from 0")
    shape: tuple[int, int, int] = Field(description="[gates, out, in]")
    weight_error: float = Field(description="|W - A| / |W|, Frobenius, over all gates of the layer")
    gate_errors: tuple[float, ...] = Field(description="the same for each gate alone")
    output_error: float | None = Field(
        description="root mean square of (W - A) x over that of W x, for the vectors x that the "
        "matrices read of the calibration batch; null where they read none"
    )
    parameters_before: int = Field(description="numbers of the matrices as they were")
    parameters_after: int
    multiply_adds_before: int = Field(description="per vector")
    multiply_adds_after: int


class ConversionReport(Spec):
    """A whole conversion: its layers, and totals over all that the network holds."""

    spec: ModelSpec | None = Field(
        description="of the converted network; null for one that is not of our architectures"
    )
    layers: tuple[LayerConversion, ...]
    parameters_before: int = Field(description="numbers of the whole network, frozen or not")
    parameters_after: int
    multiply_adds_before: int = Field(description="of the converted matrices")
    multiply_adds_after: int
    output_error: float | None = Field(
        description="|y' - y| / |y| for the network's answers to the calibration batch, y before "
        "and y' after; null without one, and where no tensor is found in the answers"
    )

    @property
    def weight_error(self) -> float:
        """The largest relative weight error of a layer; 0 where nothing was converted."""
        return max((layer.weight_error for layer in self.layers), default=0.0)


class Cost(Spec):
    """Numbers and multiply-adds of one layer of a slot."""

    parameters: int
    multiply_adds: int


def layers_of(
    name: str,
    weight: Tensor,
    linear: StructuredLinear,
    *,
    before: Sequence[Cost],
    moments: Tensor | None,
) -> list[LayerConversion]:
    """One row per layer of a slot, of what the module holds in the type that it has.

    `weight` is W `[G, out, in]`, `before` what each layer was, `moments` `[G, in, in]`.
    """
    slot = linear.slot
    stored = stored_weight(linear)
    weight = weight.detach().to("cpu", torch.float64)
    stack = (slot.layers, slot.gates)
    difference = (weight - stored).view(*stack, *weight.shape[1:])
    weight = weight.view_as(difference)
    after = costs_of(linear)
    rows: list[LayerConversion] = []
    for layer in range(slot.layers):
        seen = None
        if moments is not None:
            c = moments.view(*stack, *moments.shape[1:])[layer]
            seen = _share(_energy(difference[layer], c).sum(), _energy(weight[layer], c).sum())
        gates = [
            _share(e.square().sum(), w.square().sum())
            for e, w in zip(difference[layer], weight[layer], strict=True)
        ]
        rows.append(
            LayerConversion(
                slot=name,
                layer=layer,
                shape=(slot.gates, linear.out_features, linear.in_features),
                weight_error=_share(difference[layer].square().sum(), weight[layer].square().sum()),
                gate_errors=tuple(gates),
                output_error=seen,
                parameters_before=before[layer].parameters,
                parameters_after=after[layer].parameters,
                multiply_adds_before=before[layer].multiply_adds,
                multiply_adds_after=after[layer].multiply_adds,
            )
        )
    return rows


def costs_of(linear: StructuredLinear) -> list[Cost]:
    """Of each layer; layers that are stored together cost the same."""
    if linear.members:
        return [cost for member in linear.members for cost in costs_of(member)]
    layers = linear.slot.layers
    return [
        Cost(
            parameters=numbers_of(linear) // layers,
            multiply_adds=linear.multiply_adds() // layers,
        )
    ] * layers


def plain_costs(weight: Tensor, slot: Slot) -> list[Cost]:
    """Of each layer of plain matrices `[G, out, in]`."""
    each = weight.numel() // slot.layers
    return [Cost(parameters=each, multiply_adds=each)] * slot.layers


def numbers_of(module: nn.Module) -> int:
    """Numbers that are stored, frozen or not."""
    return sum(p.numel() for p in module.parameters())


@torch.no_grad()
def stored_weight(linear: StructuredLinear) -> Tensor:
    """W `[G, out, in]` in double precision, of the numbers as they are stored."""
    return copy.deepcopy(linear).to("cpu", torch.float64).dense_weight()


def relative_distance(before: Tensor, after: Tensor) -> float:
    """`|y' - y| / |y|`."""
    before, after = before.double(), after.double()
    return _share((after - before).square().sum(), before.square().sum())


def _energy(matrices: Tensor, moments: Tensor) -> Tensor:
    """`E |A x|^2` `[G]`."""
    return ((matrices @ moments) * matrices).sum((-2, -1))


def _share(lost: Tensor, whole: Tensor) -> float:
    """`sqrt(lost / whole)`; 0 where nothing is lost of nothing, 1 where something is."""
    if float(whole) == 0:
        return float(float(lost) > 0)
    return float((lost.clamp(min=0) / whole).sqrt())
