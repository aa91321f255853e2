"""Shapes: how numbers are arranged, and what is computed of that alone."""

import numpy as np
import torch
from onnx import TensorProto
from torch import Tensor
from torch.nn import functional as F

from models.graphs.interpreter.node import Node
from models.graphs.interpreter.operators.operator_table import OperatorTable
from models.graphs.interpreter.tensor_values import (
    TYPES,
    aligned,
    torch_type,
    type_name,
    whole_numbers,
)

TENSOR_SHAPES = OperatorTable()


@TENSOR_SHAPES.operator("Shape")
def shape(node: Node, x: Tensor) -> Tensor:
    """The sizes of the axes, or of some of them, on the CPU."""
    end = node.integer("end", x.dim()) if node.has("end") else None
    return torch.tensor(list(x.shape[node.integer("start", 0) : end]), dtype=torch.int64)


@TENSOR_SHAPES.operator("Size")
def size(_node: Node, x: Tensor) -> Tensor:
    """How many numbers there are, on the CPU."""
    return torch.tensor(x.numel(), dtype=torch.int64)


@TENSOR_SHAPES.operator("Constant")
def constant(node: Node) -> Tensor:
    """What the node has in one of its attributes."""
    value = node.tensor("value")
    if value is not None:
        return value
    if node.has("value_float"):
        return torch.tensor(node.real("value_float", 0), dtype=torch.float32)
    if node.has("value_int"):
        return torch.tensor(node.integer("value_int", 0), dtype=torch.int64)
    if (reals := node.reals("value_floats")) is not None:
        return torch.tensor(reals, dtype=torch.float32)
    if (integers := node.integers("value_ints")) is not None:
        return torch.tensor(integers, dtype=torch.int64)
    raise node.refuse("a constant has numbers; texts and sparse tensors are not computed")


@TENSOR_SHAPES.operator("ConstantOfShape")
def constant_of_shape(node: Node, sizes: Tensor) -> Tensor:
    """One number in a given shape, 0 where the node has none."""
    value = node.tensor("value")
    shape = whole_numbers(sizes)
    if value is None:
        return torch.zeros(shape)
    return value.reshape(()).expand(shape).clone()


@TENSOR_SHAPES.operator("Range", on_cpu=(0, 1, 2))
def number_range(_node: Node, start: Tensor, limit: Tensor, step: Tensor) -> Tensor:
    """Numbers from one up to another, without it."""
    return torch.arange(start.item(), limit.item(), step.item(), dtype=start.dtype)


def _unknown_type(node: Node) -> str | None:
    element = node.integer("to", 1)
    return None if element in TYPES else f"to {type_name(element)}"


@TENSOR_SHAPES.operator("Cast", fault=_unknown_type)
def cast(node: Node, x: Tensor) -> Tensor:
    """Numbers in another type."""
    element = node.integer("to", 1)
    if element == TensorProto.FLOAT16:
        # Rounded as half precision is; gradients pass as they are, for small ones would be lost.
        x = x.float()
        return x + (x.half().float() - x).detach()
    return x.to(torch_type(element))


@TENSOR_SHAPES.operator("CastLike")
def cast_like(_node: Node, x: Tensor, like: Tensor) -> Tensor:
    """Numbers in the type of another tensor."""
    return x.to(like.dtype)


@TENSOR_SHAPES.operator("Reshape")
def reshape(node: Node, x: Tensor, sizes: Tensor) -> Tensor:
    """Another shape; 0 keeps the size of that axis, -1 is what is left."""
    wanted = whole_numbers(sizes)
    if not node.flag("allowzero"):
        wanted = [x.shape[place] if one == 0 else one for place, one in enumerate(wanted)]
    return x.reshape(wanted)


@TENSOR_SHAPES.operator("Flatten")
def flatten(node: Node, x: Tensor) -> Tensor:
    """A matrix: the axes before one, and those from it on."""
    axis = node.integer("axis", 1)
    axis = axis + x.dim() if axis < 0 else axis
    rows = 1
    for one in x.shape[:axis]:
        rows *= one
    return x.reshape(rows, x.numel() // rows if rows else 0)


@TENSOR_SHAPES.operator("Transpose")
def transpose(node: Node, x: Tensor) -> Tensor:
    """Axes in another order, reversed where none is given."""
    order = node.integers("perm")
    return x.permute(list(range(x.dim()))[::-1] if order is None else order)


@TENSOR_SHAPES.operator("Concat")
def concat(node: Node, *values: Tensor) -> Tensor:
    """Tensors one behind the other along an axis."""
    return torch.cat(aligned(*values), node.integer("axis", 0))


def _pieces(node: Node, x: Tensor, sizes: list[int] | None) -> tuple[Tensor, ...]:
    axis = node.integer("axis", 0)
    if sizes is None:
        count = node.integer("num_outputs", len(node.outputs))
        each = -(-x.shape[axis] // count)
        # The last piece is smaller where they do not come out even.
        sizes = [each] * (count - 1) + [x.shape[axis] - each * (count - 1)]
    return torch.split(x, sizes, axis)


@TENSOR_SHAPES.operator("Split", until=12)
def split_by_attribute(node: Node, x: Tensor) -> tuple[Tensor, ...]:
    """Pieces of the sizes that the node has, or equal ones."""
    return _pieces(node, x, node.integers("split"))


@TENSOR_SHAPES.operator("Split", since=13)
def split(node: Node, x: Tensor, sizes: Tensor | None = None) -> tuple[Tensor, ...]:
    """Pieces of the sizes that are an input, or equal ones."""
    return _pieces(node, x, None if sizes is None else whole_numbers(sizes))


def _squeezed(x: Tensor, axes: list[int] | None) -> Tensor:
    if axes is None:
        return x.squeeze()
    return x.squeeze(axes) if axes else x


def _unsqueezed(x: Tensor, axes: list[int]) -> Tensor:
    dimensions = x.dim() + len(axes)
    for axis in sorted(axis % dimensions for axis in axes):
        x = x.unsqueeze(axis)
    return x


@TENSOR_SHAPES.operator("Squeeze", until=12)
def squeeze_by_attribute(node: Node, x: Tensor) -> Tensor:
    """Without the axes of size 1 that the node names, or without all of them."""
    return _squeezed(x, node.integers("axes"))


@TENSOR_SHAPES.operator("Squeeze", since=13)
def squeeze(_node: Node, x: Tensor, axes: Tensor | None = None) -> Tensor:
    """Without the axes of size 1 that an input names, or without all of them."""
    return _squeezed(x, None if axes is None else whole_numbers(axes))


@TENSOR_SHAPES.operator("Unsqueeze", until=12)
def unsqueeze_by_attribute(node: Node, x: Tensor) -> Tensor:
    """With axes of size 1 that the node names."""
    return _unsqueezed(x, node.integers("axes") or [])


@TENSOR_SHAPES.operator("Unsqueeze", since=13)
def unsqueeze(_node: Node, x: Tensor, axes: Tensor) -> Tensor:
    """With axes of size 1 that an input names."""
    return _unsqueezed(x, whole_numbers(axes))


@TENSOR_SHAPES.operator("Expand")
def expand(_node: Node, x: Tensor, sizes: Tensor) -> Tensor:
    """Broadcast to a shape; where the tensor is larger, it stays so."""
    return x.expand(np.broadcast_shapes(tuple(x.shape), tuple(whole_numbers(sizes))))


@TENSOR_SHAPES.operator("Tile")
def tile(_node: Node, x: Tensor, repeats: Tensor) -> Tensor:
    """Copies along each axis."""
    return x.repeat(whole_numbers(repeats))


@TENSOR_SHAPES.operator("Trilu")
def triangle(node: Node, x: Tensor, diagonal: Tensor | None = None) -> Tensor:
    """The upper or lower triangle of each matrix, the rest 0."""
    offset = 0 if diagonal is None else whole_numbers(diagonal)[0]
    return torch.triu(x, offset) if node.flag("upper", True) else torch.tril(x, offset)


@TENSOR_SHAPES.operator("EyeLike")
def eye_like(node: Node, x: Tensor) -> Tensor:
    """Ones on a diagonal, in the shape of a matrix."""
    kind = torch_type(node.integer("dtype", 1)) if node.has("dtype") else x.dtype
    ones = torch.ones(x.shape, dtype=kind, device=x.device)
    offset = node.integer("k", 0)
    return torch.triu(torch.tril(ones, offset), offset)


@TENSOR_SHAPES.operator("DepthToSpace")
def depth_to_space(node: Node, x: Tensor) -> Tensor:
    """Channels spread over blocks of places: `[B, C b^2, H, W]` to `[B, C, H b, W b]`."""
    block, (batch, channels, high, wide) = node.integer("blocksize", 1), x.shape
    if node.text("mode", "DCR") == "CRD":
        return F.pixel_shuffle(x, block)
    apart = x.reshape(batch, block, block, channels // block**2, high, wide)
    return apart.permute(0, 3, 4, 1, 5, 2).reshape(batch, -1, high * block, wide * block)


@TENSOR_SHAPES.operator("SpaceToDepth")
def space_to_depth(node: Node, x: Tensor) -> Tensor:
    """Blocks of places as channels: `[B, C, H b, W b]` to `[B, b^2 C, H, W]`."""
    block, (batch, channels, high, wide) = node.integer("blocksize", 1), x.shape
    apart = x.reshape(batch, channels, high // block, block, wide // block, block)
    return apart.permute(0, 3, 5, 1, 2, 4).reshape(batch, -1, high // block, wide // block)
