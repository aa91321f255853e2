"""Normalisation by statistics of the batch that was trained on, or of the sample itself."""

import math

import torch
from torch import Tensor
from torch.nn import functional as F

from models.graphs.interpreter.node import Node
from models.graphs.interpreter.operators.elementwise import root
from models.graphs.interpreter.operators.operator_table import OperatorTable, Result

NORMALISATION = OperatorTable()


def _by_channel(value: Tensor, x: Tensor) -> Tensor:
    """`[C]` for numbers of shape `[B, C, ...]`."""
    return value.reshape(1, -1, *(1 for _ in x.shape[2:]))


def _standardised(x: Tensor, axes: list[int], epsilon: float) -> Tensor:
    centred = x - x.mean(axes, keepdim=True)
    return centred * torch.rsqrt(centred.square().mean(axes, keepdim=True) + epsilon)


def _trains(node: Node) -> str | None:
    return "in training" if node.flag("training_mode") else None


@NORMALISATION.operator("BatchNormalization", fault=_trains)
def batch_normalization(
    node: Node, x: Tensor, scale: Tensor, shift: Tensor, mean: Tensor, variance: Tensor
) -> Tensor:
    """Channels by statistics that the file has: `[B, C, ...]`."""
    factor = scale * torch.rsqrt(variance + node.real("epsilon", 1e-5))
    return x * _by_channel(factor, x) + _by_channel(shift - mean * factor, x)


@NORMALISATION.operator("InstanceNormalization")
def instance_normalization(node: Node, x: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
    """Each channel of each sample by its own mean and variance."""
    found = _standardised(x, list(range(2, x.dim())), node.real("epsilon", 1e-5))
    return found * _by_channel(scale, x) + _by_channel(shift, x)


@NORMALISATION.operator("GroupNormalization")
def group_normalization(node: Node, x: Tensor, scale: Tensor, shift: Tensor) -> Tensor:
    """Groups of channels by their own mean and variance.

    Scale and shift are of groups until opset 20, of channels since.
    """
    groups = node.integer("num_groups", 1)
    apart = x.reshape(len(x), groups, -1)
    found = _standardised(apart, [2], node.real("epsilon", 1e-5)).reshape(x.shape)
    if node.opset < 21:
        each = x.shape[1] // groups
        scale, shift = scale.repeat_interleave(each), shift.repeat_interleave(each)
    return found * _by_channel(scale, x) + _by_channel(shift, x)


@NORMALISATION.operator("LayerNormalization")
def layer_normalization(
    node: Node, x: Tensor, scale: Tensor, shift: Tensor | None = None
) -> Result:
    """All axes from one on by their own mean and variance; both are outputs where they are read."""
    axis = node.integer("axis", -1) % x.dim()
    axes, epsilon = list(range(axis, x.dim())), node.real("epsilon", 1e-5)
    is_whole = all(one is None or one.shape == x.shape[axis:] for one in (scale, shift))
    if not node.wants(1) and not node.wants(2) and is_whole:
        return F.layer_norm(x, x.shape[axis:], scale, shift, epsilon)
    mean = x.mean(axes, keepdim=True)
    centred = x - mean
    inverse = torch.rsqrt(centred.square().mean(axes, keepdim=True) + epsilon)
    found = centred * inverse * scale
    return (found if shift is None else found + shift), mean, inverse


@NORMALISATION.operator("RMSNormalization")
def rms_normalization(node: Node, x: Tensor, scale: Tensor) -> Tensor:
    """All axes from one on by the root of their mean square."""
    axes = list(range(node.integer("axis", -1) % x.dim(), x.dim()))
    square = x.square().mean(axes, keepdim=True)
    return x * torch.rsqrt(square + node.real("epsilon", 1e-5)) * scale


@NORMALISATION.operator("LpNormalization")
def lp_normalization(node: Node, x: Tensor) -> Tensor:
    """Numbers along an axis divided by their norm; a norm of 0 leaves zeros."""
    axis, p = node.integer("axis", -1), node.integer("p", 2)
    total = x.abs().pow(p).sum(axis, keepdim=True)
    norm = total if p == 1 else root(total)
    return x / torch.where(norm == 0, 1, norm)


@NORMALISATION.operator("MeanVarianceNormalization")
def mean_variance_normalization(node: Node, x: Tensor) -> Tensor:
    """Zero mean and a variance of 1 over the axes that are named."""
    axes = node.integers("axes") or [0, 2, 3]
    centred = x - x.mean(axes, keepdim=True)
    return centred / (centred.square().mean(axes, keepdim=True).sqrt() + 1e-9)


@NORMALISATION.operator("LRN")
def local_response_normalization(node: Node, x: Tensor) -> Tensor:
    """Numbers divided by a power of the squares in the channels around them."""
    size = node.integer("size", 1)
    before = math.floor((size - 1) / 2)
    squares = F.pad(x.square().flatten(2).transpose(1, 2), (before, size - 1 - before))
    around = squares.unfold(-1, size, 1).sum(-1).transpose(1, 2).reshape(x.shape)
    factor = node.real("bias", 1.0) + node.real("alpha", 1e-4) / size * around
    return x * factor.pow(-node.real("beta", 0.75))
