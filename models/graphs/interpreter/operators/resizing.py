"""Tensors at other sizes: the nearest number, or a mean of those around."""

import math

import torch
from torch import Tensor
from torch.nn import functional as F

from models.graphs.interpreter.node import Node
from models.graphs.interpreter.operators.operator_table import OperatorTable
from models.graphs.interpreter.tensor_values import real_numbers, whole_numbers

RESIZING = OperatorTable()


def _fault(node: Node) -> str | None:
    if node.text("coordinate_transformation_mode", "half_pixel") == "tf_crop_and_resize":
        return "with tf_crop_and_resize"
    if node.flag("antialias"):
        return "with antialias"
    if node.flag("exclude_outside"):
        return "with exclude_outside"
    if node.text("keep_aspect_ratio_policy", "stretch") != "stretch":
        return "with keep_aspect_ratio_policy"
    return None


@RESIZING.operator("Resize", since=11, on_cpu=(1, 2), fault=_fault)
def resize(
    node: Node,
    x: Tensor,
    _region: Tensor | None = None,
    scales: Tensor | None = None,
    sizes: Tensor | None = None,
) -> Tensor:
    """Each axis on its own, by factors or to sizes."""
    axes = node.integers("axes") or list(range(x.dim()))
    if scales is not None and scales.numel() > 0:
        factors = real_numbers(scales)
        wanted = [math.floor(x.shape[axis] * f) for axis, f in zip(axes, factors, strict=True)]
    elif sizes is not None:
        wanted = whole_numbers(sizes)
        factors = [n / x.shape[axis] for axis, n in zip(axes, wanted, strict=True)]
    else:
        raise node.refuse("there are neither scales nor sizes")
    for axis, size, factor in zip(axes, wanted, factors, strict=True):
        if size != x.shape[axis] or factor != 1:
            x = _along(node, x, axis % x.dim(), size, factor)
    return x


@RESIZING.operator("GridSample", since=16)
def grid_sample(node: Node, x: Tensor, grid: Tensor) -> Tensor:
    """Numbers at places that a grid names, from -1 to 1 along each axis."""
    # Names of the first version, which torch still has, and those since opset 20.
    modes = {"linear": "bilinear", "cubic": "bicubic"}
    mode = node.text("mode", "linear")
    return F.grid_sample(
        x,
        grid,
        mode=modes.get(mode, mode),
        padding_mode=node.text("padding_mode", "zeros"),
        align_corners=node.flag("align_corners"),
    )


def _along(node: Node, x: Tensor, axis: int, size: int, factor: float) -> Tensor:
    """One axis at another size."""
    length = x.shape[axis]
    at = _coordinates(node, length, size, factor)
    mode = node.text("mode", "nearest")
    if mode == "nearest":
        places = _nearest(node, at).clamp(0, length - 1).long()
        return x.index_select(axis, places.to(x.device))
    if mode == "linear":
        at = at.clamp(0, length - 1)
        low = at.floor()
        taps = [(low, 1 - (at - low)), (low + 1, at - low)]
    elif mode == "cubic":
        taps = _cubic(at, node.real("cubic_coeff_a", -0.75))
    else:
        raise node.refuse(f"mode {mode}; computed are nearest, linear, cubic")
    shape = [-1 if place == axis else 1 for place in range(x.dim())]
    parts = [
        x.index_select(axis, place.clamp(0, length - 1).long().to(x.device))
        * weight.to(x.device, x.dtype).reshape(shape)
        for place, weight in taps
    ]
    return torch.stack(parts).sum(0)


def _coordinates(node: Node, length: int, size: int, factor: float) -> Tensor:
    """Where each new place lies among the old ones.

    In single precision, as the runtime has it: at a factor of 1/3 its roundings say which is
    nearest.
    """
    to = torch.arange(size, dtype=torch.float32)
    way = node.text("coordinate_transformation_mode", "half_pixel")
    if way == "asymmetric":
        return to / factor
    if way == "align_corners":
        return to * (length - 1) / (size - 1) if size > 1 else torch.zeros_like(to)
    if way == "pytorch_half_pixel" and size <= 1:
        return torch.zeros_like(to)
    centred = (to + 0.5) / factor - 0.5
    if way == "half_pixel_symmetric":
        # The middle of the picture stays the middle although a size is cut to a whole number.
        return length / 2 * (1 - size / (factor * length)) + centred
    if way in ("half_pixel", "pytorch_half_pixel"):
        return centred
    raise node.refuse(f"coordinate_transformation_mode {way} is not computed")


def _nearest(node: Node, at: Tensor) -> Tensor:
    way = node.text("nearest_mode", "round_prefer_floor")
    if way == "floor":
        return at.floor()
    if way == "ceil":
        return at.ceil()
    return (at + 0.5).floor() if way == "round_prefer_ceil" else (at - 0.5).ceil()


def _cubic(at: Tensor, a: float) -> list[tuple[Tensor, Tensor]]:
    """Four places around each, and their weights (Keys, 1981: cubic convolution, equation 15)."""
    low = at.floor()
    taps: list[tuple[Tensor, Tensor]] = []
    for offset in (-1, 0, 1, 2):
        away = (at - low - offset).abs()
        near = ((a + 2) * away - (a + 3)) * away * away + 1
        far = ((a * away - 5 * a) * away + 8 * a) * away - 4 * a
        taps.append((low + offset, torch.where(away <= 1, near, far)))
    return taps
