"""Numbers that a file has as integers with a scale, and those that it rounds on the way."""

import torch
from torch import Tensor

from models.graphs.interpreter.node import Node
from models.graphs.interpreter.operators.operator_table import OperatorTable

STORED_INTEGERS = OperatorTable()


def _spread(value: Tensor, node: Node, x: Tensor) -> Tensor:
    """Scales or zero points for `x`: one for all, one for each place of an axis, or of blocks."""
    value = value.to(x.device)
    if value.numel() == 1:
        return value.reshape(())
    axis, block = node.integer("axis", 1) % x.dim(), node.integer("block_size", 0)
    if block:
        return value.repeat_interleave(block, dim=axis).narrow(axis, 0, x.shape[axis])
    return value.reshape([-1 if place == axis else 1 for place in range(x.dim())])


@STORED_INTEGERS.operator("DequantizeLinear")
def dequantize(node: Node, x: Tensor, scale: Tensor, zero: Tensor | None = None) -> Tensor:
    """`(x - zero) scale`."""
    numbers = x.to(scale.dtype)
    if zero is not None:
        numbers = numbers - _spread(zero, node, x).to(scale.dtype)
    return numbers * _spread(scale, node, x)


@STORED_INTEGERS.operator("QuantizeLinear")
def quantize(node: Node, x: Tensor, scale: Tensor, zero: Tensor | None = None) -> Tensor:
    """`x / scale + zero` as whole numbers within their type, of floating point here.

    Gradients pass where nothing is cut off, as if nothing were rounded (arXiv:1308.3432).
    """
    kind = torch.uint8 if zero is None else zero.dtype
    if kind not in (torch.int8, torch.uint8) or node.integer("output_dtype", 0):
        raise node.refuse("only integers of 8 bits that the zero point names are computed")
    bounds = torch.iinfo(kind)
    exact = x / _spread(scale, node, x)
    whole = exact + (exact.round() - exact).detach()
    if zero is not None:
        whole = whole + _spread(zero, node, x).to(x.dtype)
    return whole.clamp(bounds.min, bounds.max)
