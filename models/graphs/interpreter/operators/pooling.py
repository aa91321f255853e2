"""Pooling: the largest or the mean of the numbers under a window."""

import math
from collections.abc import Callable, Mapping

import torch
from torch import Tensor
from torch.nn import functional as F

from models.graphs.interpreter.node import Node
from models.graphs.interpreter.operators.convolutions import Window, flattened
from models.graphs.interpreter.operators.operator_table import OperatorTable

POOLING = OperatorTable()

_LARGEST: Mapping[int, Callable[..., Tensor]] = {
    1: F.max_pool1d,
    2: F.max_pool2d,
    3: F.max_pool3d,
}
_SUMS: Mapping[int, Callable[..., Tensor]] = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}


class _Places:
    """Where a window is put: pads that the node names, and more behind to round upwards."""

    def __init__(self, node: Node, x: Tensor) -> None:
        shape = list(x.shape[2:])
        self.window = Window.of(node, node.integers("kernel_shape") or [])
        if len(shape) not in _LARGEST:
            raise node.refuse(f"{len(shape)} spatial dimensions; computed are 1 to 3")
        self.pads = self.window.pads(node, shape)
        self.more = [
            _more(n, pads, stride, reach) if node.flag("ceil_mode") else 0
            for n, pads, stride, reach in zip(
                shape, self.pads, self.window.strides, self.window.reach, strict=True
            )
        ]

    def padded(self, x: Tensor, value: float) -> Tensor:
        """With all places that windows reach."""
        edges = zip(self.pads, self.more, strict=True)
        return _with_edges(x, [(first, last + more) for (first, last), more in edges], value)

    def sums(self, x: Tensor) -> Tensor:
        """The sum under each window; torch's own mean knows no dilation."""
        ones = x.new_ones(1, 1, *self.window.size)
        batch, channels = x.shape[:2]
        flat = x.reshape(batch * channels, 1, *x.shape[2:])
        compute = _SUMS[len(self.window.size)]
        found = compute(flat, ones, None, self.window.strides, 0, self.window.dilations)
        return found.reshape(batch, channels, *found.shape[2:])


def _more(size: int, pads: tuple[int, int], stride: int, reach: int) -> int:
    """Places behind the pads for one window more; it has to begin before the pads behind do."""
    padded = size + sum(pads)
    count = -(-(padded - reach) // stride) + 1
    if (count - 1) * stride >= size + pads[0]:
        count -= 1
    return max(0, (count - 1) * stride + reach - padded)


def _with_edges(x: Tensor, pads: list[tuple[int, int]], value: float) -> Tensor:
    edges = flattened(pads)
    return F.pad(x, edges, value=value) if any(edges) else x


def _fault(node: Node) -> str | None:
    if node.wants(1):
        return "with the output Indices"
    # Here onnxruntime does not follow the standard, whose pads are those of the dilated window.
    if node.text("auto_pad", "").startswith("SAME") and max(node.integers("dilations") or [1]) > 1:
        return "with dilations and auto_pad"
    return None


@POOLING.operator("MaxPool", fault=_fault)
def largest_under_window(node: Node, x: Tensor) -> Tensor:
    """The largest number under each window; places beyond the edge do not count."""
    places = _Places(node, x)
    window = places.window
    lowest = -math.inf if x.is_floating_point() else float(torch.iinfo(x.dtype).min)
    padded = places.padded(x, lowest)
    compute = _LARGEST[len(window.size)]
    return compute(padded, window.size, window.strides, 0, window.dilations)


@POOLING.operator("AveragePool", fault=_fault)
def mean_under_window(node: Node, x: Tensor) -> Tensor:
    """The mean under each window; with `count_include_pad` the file's own pads count as zeros."""
    places = _Places(node, x)
    ones = torch.ones_like(x[:1, :1])
    if node.flag("count_include_pad"):
        ones = _with_edges(ones, places.pads, 1.0)
        counts = _with_edges(ones, [(0, more) for more in places.more], 0.0)
    else:
        counts = places.padded(ones, 0.0)
    return places.sums(places.padded(x, 0.0)) / places.sums(counts)


def _root(total: Tensor, p: int) -> Tensor:
    """The p-th root, whose gradient at 0 is 0; see `root`."""
    is_zero = total == 0
    return torch.where(is_zero, total.detach(), torch.where(is_zero, 1, total).pow(1 / p))


@POOLING.operator("LpPool", fault=_fault)
def norm_under_window(node: Node, x: Tensor) -> Tensor:
    """The p-norm of the numbers under each window."""
    places, p = _Places(node, x), node.integer("p", 2)
    return _root(places.sums(places.padded(x.abs().pow(p), 0.0)), p)


@POOLING.operator("GlobalAveragePool")
def mean_of_channel(_node: Node, x: Tensor) -> Tensor:
    """The mean of each channel, axes kept."""
    return x.mean(list(range(2, x.dim())), keepdim=True)


@POOLING.operator("GlobalMaxPool")
def largest_of_channel(_node: Node, x: Tensor) -> Tensor:
    """The largest number of each channel, axes kept."""
    return x.amax(list(range(2, x.dim())), keepdim=True)


@POOLING.operator("GlobalLpPool")
def norm_of_channel(node: Node, x: Tensor) -> Tensor:
    """The p-norm of each channel, axes kept."""
    p = node.integer("p", 2)
    return _root(x.abs().pow(p).sum(list(range(2, x.dim())), keepdim=True), p)
