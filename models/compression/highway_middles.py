"""What the batch-normalised highway stack does between thin factors, folded away or made neutral.

In evaluation mode a layer computes `k L (R x - mean) / (std + eps) + D * x`, where k is what the
middle's mask leaves on average, and normalises that once more. All but the mean is a matrix, and
the mean moves that of the normalisation behind it.
"""

from collections.abc import Iterator
from typing import cast

import torch
from torch import Tensor, nn

from models.architectures.batch_norm import EPSILON
from models.architectures.highway import (
    NormalisedHighwayStack,
    NormalisedMiddle,
    NormalisedProduct,
)
from models.compression.parts import structured_parts
from models.linear import StructuredLinear
from models.ops.factors import LowRankFactors
from models.ops.weight_norm import NormalisedRows
from models.parametrizations.low_rank_factors import LowRankLinear


def fold_middles(network: nn.Module) -> Tensor | None:
    """`k L diag(1 / (std + eps)) R + diag(D)` `[G, n, n]` of all layers, in double precision.

    None where there are no middles.
    """
    weights: list[Tensor] = []
    for middle, layer in _middles(network):
        right = layer.right * _scale(middle).view(len(layer.right), -1, 1)
        weight = layer.left @ right.repeat_interleave(layer.shared_by, 0)
        if layer.diagonal is not None:
            weight = weight + torch.diag_embed(layer.diagonal)
        weights.append(weight)
    return torch.cat(weights) if weights else None


@torch.no_grad()
def shift_norms_(network: nn.Module, dense: nn.Module) -> None:
    """Move what the middles of a network subtract into the normalisation of a dense one, in place.

    It is subtracted before that normalisation, and so added to its mean.
    """
    for (middle, layer), product in zip(_middles(network), _products(dense), strict=False):
        shift = _scale(middle) * middle.norm.mean.to("cpu", torch.float64)
        columns = shift.view(len(layer.right), -1, 1).repeat_interleave(layer.shared_by, 0)
        product.norm.mean.add_((layer.left @ columns).flatten().to(product.norm.mean))


@torch.no_grad()
def neutralise_middles_(network: nn.Module) -> None:
    """Make middles subtract 0 and divide by 1, and L undo their masks' mean, in place."""
    hidden = structured_parts(network).get("hidden")
    if not isinstance(hidden, LowRankLinear):
        return
    middles = [product.middle for product in _products(network) if product.middle is not None]
    for middle in middles:
        middle.norm.mean.zero_()
        middle.norm.std.fill_(1 - EPSILON)
    if middles:
        left = hidden.left.gain if isinstance(hidden.left, NormalisedRows) else hidden.left
        assert left is not None
        left.div_(1 - middles[0].dropout)


def _products(network: nn.Module) -> list[NormalisedProduct]:
    """The normalised products of a highway stack; none of any other network."""
    stack = getattr(network, "stack", None)
    if not isinstance(stack, NormalisedHighwayStack):
        return []
    return cast(list[NormalisedProduct], list(stack.products))


def _middles(network: nn.Module) -> Iterator[tuple[NormalisedMiddle, LowRankFactors]]:
    """Each layer's middle with its factors in double precision on the CPU."""
    hidden = structured_parts(network).get("hidden")
    products = _products(network)
    if hidden is None or not products or products[0].middle is None:
        return
    for product, layer in zip(products, _layers(hidden), strict=True):
        assert product.middle is not None
        yield product.middle, layer


def _scale(middle: NormalisedMiddle) -> Tensor:
    return (1 - middle.dropout) / (middle.norm.std.to("cpu", torch.float64) + EPSILON)


def _layers(hidden: StructuredLinear) -> list[LowRankFactors]:
    with torch.no_grad():
        factors = hidden.make_factors()
    assert isinstance(factors, LowRankFactors)
    diagonal = factors.diagonal
    whole = LowRankFactors(
        factors.left.to("cpu", torch.float64),
        factors.right.to("cpu", torch.float64),
        None if diagonal is None else diagonal.to("cpu", torch.float64),
    )
    return whole.split(hidden.slot.gates)
