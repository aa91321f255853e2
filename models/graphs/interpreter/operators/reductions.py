"""Sums, means and the like along axes."""

from collections.abc import Callable

import torch
from torch import Tensor

from models.graphs.interpreter.node import Node
from models.graphs.interpreter.operators.elementwise import root
from models.graphs.interpreter.operators.operator_table import OperatorTable
from models.graphs.interpreter.tensor_values import whole_numbers

REDUCTIONS = OperatorTable()


def _product(x: Tensor, axes: list[int], keep: bool) -> Tensor:
    # Axes from the last on, for each that is dropped moves those behind it.
    for axis in sorted((axis % x.dim() for axis in axes), reverse=True):
        x = torch.prod(x, axis, keepdim=keep)
    return x


def _sum(x: Tensor, axes: list[int], keep: bool) -> Tensor:
    # torch sums small integers as int64.
    return torch.sum(x, axes, keepdim=keep, dtype=x.dtype)


def _mean(x: Tensor, axes: list[int], keep: bool) -> Tensor:
    if x.is_floating_point():
        return torch.mean(x, axes, keepdim=keep)
    count = x.numel() // max(1, _sum(x, axes, keep).numel())
    return torch.div(_sum(x, axes, keep), count, rounding_mode="trunc")


REDUCED: dict[str, Callable[[Tensor, list[int], bool], Tensor]] = {
    "ReduceL1": lambda x, axes, keep: _sum(x.abs(), axes, keep),
    "ReduceL2": lambda x, axes, keep: root(_sum(x * x, axes, keep)),
    "ReduceLogSum": lambda x, axes, keep: torch.log(_sum(x, axes, keep)),
    "ReduceLogSumExp": lambda x, axes, keep: torch.logsumexp(x, axes, keepdim=keep),
    "ReduceMax": lambda x, axes, keep: torch.amax(x, axes, keepdim=keep),
    "ReduceMean": _mean,
    "ReduceMin": lambda x, axes, keep: torch.amin(x, axes, keepdim=keep),
    "ReduceProd": _product,
    "ReduceSum": _sum,
    "ReduceSumSquare": lambda x, axes, keep: _sum(x * x, axes, keep),
}
"""What each operator makes of the numbers along its axes, which are kept with one number each or
dropped."""


def _enter(name: str, function: Callable[[Tensor, list[int], bool], Tensor]) -> None:
    """One function for axes as an attribute, one for axes as an input."""

    def by_attribute(node: Node, x: Tensor) -> Tensor:
        axes = node.integers("axes") or list(range(x.dim()))
        return function(x, axes, node.flag("keepdims", True))

    def by_input(node: Node, x: Tensor, axes: Tensor | None = None) -> Tensor:
        named = [] if axes is None else whole_numbers(axes)
        if not named and node.flag("noop_with_empty_axes"):
            # Along no axis each number is reduced alone: squares are still taken.
            return function(x.unsqueeze(-1), [x.dim()], False)
        return function(x, named or list(range(x.dim())), node.flag("keepdims", True))

    # Sums take their axes as an input since opset 13, all others since 18.
    changed = 13 if name == "ReduceSum" else 18
    REDUCTIONS.add(name, by_attribute, until=changed - 1)
    REDUCTIONS.add(name, by_input, since=changed)


for _name, _function in REDUCED.items():
    _enter(_name, _function)


def _place(node: Node, x: Tensor, function: Callable[[Tensor, int], Tensor]) -> Tensor:
    """Where along an axis the extreme is; of equal ones the first, or the last if asked for."""
    axis = node.integer("axis", 0)
    if node.flag("select_last_index"):
        found = x.shape[axis] - 1 - function(x.flip(axis), axis)
    else:
        found = function(x, axis)
    return found.unsqueeze(axis) if node.flag("keepdims", True) else found


@REDUCTIONS.operator("ArgMax")
def place_of_largest(node: Node, x: Tensor) -> Tensor:
    """The place of the largest number along an axis."""
    return _place(node, x, torch.argmax)


@REDUCTIONS.operator("ArgMin")
def place_of_smallest(node: Node, x: Tensor) -> Tensor:
    """The place of the smallest number along an axis."""
    return _place(node, x, torch.argmin)


@REDUCTIONS.operator("CumSum")
def cumulative_sum(node: Node, x: Tensor, axis: Tensor) -> Tensor:
    """Sums of the numbers up to each, with it or without it, from either end."""
    along = whole_numbers(axis)[0]
    x = x.flip(along) if node.flag("reverse") else x
    found = torch.cumsum(x, along, dtype=x.dtype)
    if node.flag("exclusive"):
        found = found - x
    return found.flip(along) if node.flag("reverse") else found
