"""What the batch-normalised highway stack does between thin factors, folded away or made neutral.

In evaluation mode a layer computes `k L (R x - mean) / (std + eps) + D * x`, where k is what the
middle's mask leaves on average, and normalises that once more. All but the mean is a matrix, and
the mean moves that of the normalisation behind it.
"""

from dataclasses import dataclass
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
from models.compression.report import stored_weight
from models.forms import Form, Thin
from models.linear import StructuredLinear
from models.math.weight_norm import NormalisedRows
from models.parametrizations.parts.low_rank_factors import LowRankLinear


def fold_middles(network: nn.Module) -> Tensor | None:
    """`k L diag(1 / (std + eps)) R + diag(D)` `[G, n, n]` of all layers, in double precision.

    Layers without a middle have their matrices as they are. None where there are no middles.
    """
    layers = _layers(network)
    if all(layer.middle is None for layer in layers):
        return None
    return torch.cat([_folded(layer) for layer in layers])


@torch.no_grad()
def shift_norms_(network: nn.Module, dense: nn.Module) -> None:
    """Move what the middles of a network subtract into the normalisation of a dense one, in place.

    It is subtracted before that normalisation, and so added to its mean.
    """
    for layer, product in zip(_layers(network), _products(dense), strict=False):
        if layer.middle is None or layer.thin is None:
            continue
        left, right = layer.thin.left, layer.thin.right
        shift = _scale(layer.middle) * layer.middle.norm.mean.to("cpu", torch.float64)
        columns = shift.view(len(right), -1, 1).repeat_interleave(layer.thin.shared_by, 0)
        product.norm.mean.add_((left @ columns).flatten().to(product.norm.mean))


@torch.no_grad()
def neutralise_middles_(network: nn.Module) -> None:
    """Make middles subtract 0 and divide by 1, and L undo their masks' mean, in place."""
    done: set[StructuredLinear] = set()
    for layer in _layers(network):
        if layer.middle is None:
            continue
        layer.middle.norm.mean.zero_()
        layer.middle.norm.std.fill_(1 - EPSILON)
        # Layers that are stored together have their L, too.
        if layer.owner not in done:
            done.add(layer.owner)
            assert isinstance(layer.owner, LowRankLinear)
            stored = layer.owner.left
            left = stored.gain if isinstance(stored, NormalisedRows) else stored
            assert left is not None
            left.div_(1 - layer.middle.dropout)


@dataclass(frozen=True, eq=False)
class _Layer:
    """A layer of a batch-normalised highway stack."""

    owner: StructuredLinear
    """What stores its matrices, alone or with those of all layers."""
    middle: NormalisedMiddle | None
    thin: Thin | None
    """Its matrices around the middle, in double precision on the CPU."""


def _folded(layer: _Layer) -> Tensor:
    if layer.middle is None or layer.thin is None:
        # Beside layers with a middle it stands alone.
        return stored_weight(layer.owner)
    left, right, diagonal = layer.thin.left, layer.thin.right, layer.thin.diagonal
    right = right * _scale(layer.middle).view(len(right), -1, 1)
    weight = left @ right.repeat_interleave(layer.thin.shared_by, 0)
    return weight if diagonal is None else weight + torch.diag_embed(diagonal)


def _products(network: nn.Module) -> list[NormalisedProduct]:
    """The normalised products of a highway stack; none of any other network."""
    stack = getattr(network, "stack", None)
    if not isinstance(stack, NormalisedHighwayStack):
        return []
    return cast(list[NormalisedProduct], list(stack.products))


def _layers(network: nn.Module) -> list[_Layer]:
    """The layers of a batch-normalised highway stack; none of any other network."""
    products = _products(network)
    if not products:
        return []
    hidden = structured_parts(network)["hidden"]
    owners = hidden.members or [hidden]
    matrices = [(owner, thin) for owner in owners for thin in _thin(owner)]
    return [
        _Layer(owner, product.middle, thin)
        for product, (owner, thin) in zip(products, matrices, strict=True)
    ]


def _thin(owner: StructuredLinear) -> list[Thin] | list[None]:
    """Those of each layer, where they have a narrow middle."""
    if owner.inner_size is None:
        return [None] * owner.slot.layers
    with torch.no_grad():
        form = owner.make_form()
    exact = form.rebuild([tensor.to("cpu", torch.float64) for tensor in form.tensors()])
    return [_parts(layer) for layer in exact.split(owner.slot.gates)]


def _parts(form: Form) -> Thin:
    parts = form.parts()
    assert isinstance(parts, Thin)
    return parts


def _scale(middle: NormalisedMiddle) -> Tensor:
    return (1 - middle.dropout) / (middle.norm.std.to("cpu", torch.float64) + EPSILON)
