"""Convolutions and their transposes, in one to three dimensions."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from torch import Tensor
from torch.nn import functional as F

from models.graphs.interpreter.node import Node
from models.graphs.interpreter.operators.operator_table import OperatorTable

CONVOLUTIONS = OperatorTable()

Function = Callable[..., Tensor]

_FORWARD: Mapping[int, Function] = {1: F.conv1d, 2: F.conv2d, 3: F.conv3d}
_TRANSPOSED: Mapping[int, Function] = {
    1: F.conv_transpose1d,
    2: F.conv_transpose2d,
    3: F.conv_transpose3d,
}


@dataclass(frozen=True)
class Window:
    """How a kernel is moved, a number for each spatial axis."""

    size: list[int]
    strides: list[int]
    dilations: list[int]

    @classmethod
    def of(cls, node: Node, size: list[int]) -> "Window":
        """As a node says."""
        ones = [1] * len(size)
        return cls(size, node.integers("strides") or ones, node.integers("dilations") or ones)

    @property
    def reach(self) -> list[int]:
        """How many places it spans."""
        return [(k - 1) * d + 1 for k, d in zip(self.size, self.dilations, strict=True)]

    def pads(self, node: Node, shape: list[int]) -> list[tuple[int, int]]:
        """Places before and behind each axis.

        With `auto_pad` of SAME as many as give `ceil(size / stride)` outputs, the odd one behind
        or (SAME_LOWER) before; with VALID none.
        """
        way = node.text("auto_pad", "NOTSET")
        if way == "NOTSET":
            amounts = node.integers("pads") or [0] * 2 * len(shape)
            return list(zip(amounts[: len(shape)], amounts[len(shape) :], strict=True))
        if way == "VALID":
            return [(0, 0)] * len(shape)
        totals = [
            max(0, (-(-n // s) - 1) * s + reach - n)
            for n, s, reach in zip(shape, self.strides, self.reach, strict=True)
        ]
        return [halved(total, lower=way == "SAME_LOWER") for total in totals]


def halved(total: int, *, lower: bool) -> tuple[int, int]:
    """A number as two halves, the larger one first with `lower`, else last."""
    small = total // 2
    return (total - small, small) if lower else (small, total - small)


def flattened(pads: list[tuple[int, int]]) -> list[int]:
    """As torch takes them: the last axis first."""
    return [one for pair in reversed(pads) for one in pair]


@CONVOLUTIONS.operator("Conv")
def convolution(node: Node, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """`[B, C, ...]` with kernels `[out, C / group, ...]`."""
    window = Window.of(node, list(weight.shape[2:]))
    pads = window.pads(node, list(x.shape[2:]))
    same = [first for first, last in pads if first == last]
    if len(same) < len(pads):
        x = F.pad(x, flattened(pads))
        same = [0] * len(pads)
    groups = node.integer("group", 1)
    compute = _function(node, _FORWARD, len(pads))
    return compute(x, weight, bias, window.strides, same, window.dilations, groups)


@CONVOLUTIONS.operator("ConvTranspose")
def transposed_convolution(
    node: Node, x: Tensor, weight: Tensor, bias: Tensor | None = None
) -> Tensor:
    """`[B, C, ...]` with kernels `[C, out / group, ...]`; the bias is added last."""
    window = Window.of(node, list(weight.shape[2:]))
    groups = node.integer("group", 1)
    compute = _function(node, _TRANSPOSED, len(window.size))
    # Without padding torch gives all places that a kernel reaches; what the file cuts is cut here,
    # for it may cut unequally.
    whole = compute(x, weight, None, window.strides, 0, 0, groups, window.dilations)
    added = node.integers("output_padding") or [0] * len(window.size)
    cut = _cuts(node, window, list(x.shape[2:]), list(whole.shape[2:]), added)
    edges = [(-first, more - last) for (first, last), more in zip(cut, added, strict=True)]
    found = F.pad(whole, flattened(edges))
    if bias is None:
        return found
    return found + bias.reshape(1, -1, *(1 for _ in window.size))


def _cuts(
    node: Node, window: Window, shape: list[int], whole: list[int], added: list[int]
) -> list[tuple[int, int]]:
    """How many places are cut before and behind each axis; below 0, how many are added."""
    way = node.text("auto_pad", "NOTSET")
    wanted = node.integers("output_shape")
    if wanted is None and way in ("NOTSET", "VALID"):
        return window.pads(node, shape)
    if wanted is None:
        wanted = [n * s for n, s in zip(shape, window.strides, strict=True)]
    sizes = zip(whole, added, wanted[-len(shape) :], strict=True)
    totals = [full + more - size for full, more, size in sizes]
    # What is wanted beyond the whole is filled behind it.
    return [
        (0, total) if total < 0 else halved(total, lower=way != "SAME_UPPER") for total in totals
    ]


def _function(node: Node, functions: Mapping[int, Function], dimensions: int) -> Function:
    if dimensions not in functions:
        raise node.refuse(f"{dimensions} spatial dimensions; computed are 1 to 3")
    return functions[dimensions]
