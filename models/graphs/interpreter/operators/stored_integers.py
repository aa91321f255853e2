"""Numbers that a file has as integers with a scale, and those that it rounds on the way.

What is rounded on the way is of floating point here, and holds whole numbers: gradients pass as if
nothing were rounded where nothing is cut off (arXiv:1308.3432). Sums of such products are exact
below 2^24.
"""

import torch
from torch import Tensor

from models.graphs.interpreter.node import Node
from models.graphs.interpreter.operators.convolutions import convolution
from models.graphs.interpreter.operators.operator_table import OperatorTable
from models.graphs.interpreter.tensor_values import aligned

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
    """`x / scale + zero` as whole numbers within their type."""
    kind = torch.uint8 if zero is None else zero.dtype
    if kind not in (torch.int8, torch.uint8) or node.integer("output_dtype", 0):
        raise node.refuse("only integers of 8 bits that the zero point names are computed")
    bounds = torch.iinfo(kind)
    whole = _rounded(x / _spread(scale, node, x))
    if zero is not None:
        whole = whole + _spread(zero, node, x).to(x.dtype)
    return whole.clamp(bounds.min, bounds.max)


def _rounded(exact: Tensor) -> Tensor:
    return exact.detach().round() + (exact - exact.detach())


@STORED_INTEGERS.operator("DynamicQuantizeLinear")
def quantize_by_range(_node: Node, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Whole numbers from 0 to 255 by the range of the tensor, with their scale and zero point."""
    with torch.no_grad():
        low, high = x.amin().clamp_max(0), x.amax().clamp_min(0)
        scale = (high - low) / 255
        scale = torch.where(scale == 0, torch.ones_like(scale), scale)
        zero = (-low / scale).clamp(0, 255).round()
    return (_rounded(x / scale) + zero).clamp(0, 255), scale, zero


def _from_zero(x: Tensor, zero: Tensor | None, *, axis: int) -> Tensor:
    """Integers without their zero point, which is one for all or one for each place of an axis."""
    x = x if x.is_floating_point() else x.float()
    if zero is None:
        return x
    zero = zero.to(x.device, x.dtype)
    if zero.numel() > 1 and zero.dim() == 1:
        zero = zero.reshape([-1 if place == axis % x.dim() else 1 for place in range(x.dim())])
    return x - (zero if zero.numel() > 1 else zero.reshape(()))


@STORED_INTEGERS.operator("MatMulInteger")
def integer_matmul(
    _node: Node, a: Tensor, b: Tensor, a_zero: Tensor | None = None, b_zero: Tensor | None = None
) -> Tensor:
    """A product of integers without their zero points, those of rows of A and columns of B."""
    a, b = aligned(_from_zero(a, a_zero, axis=-2), _from_zero(b, b_zero, axis=-1))
    return a @ b


@STORED_INTEGERS.operator("ConvInteger")
def integer_convolution(
    node: Node, x: Tensor, w: Tensor, x_zero: Tensor | None = None, w_zero: Tensor | None = None
) -> Tensor:
    """A convolution of integers without their zero points, that of a kernel for each output."""
    x, w = aligned(_from_zero(x, x_zero, axis=1), _from_zero(w, w_zero, axis=0))
    return convolution(node, x, w)
