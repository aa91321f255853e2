"""Comparisons, logic, and choices by them."""

from collections.abc import Callable

import torch
from torch import Tensor

from models.graphs.interpreter.node import Node
from models.graphs.interpreter.operators.operator_table import OperatorTable
from models.graphs.interpreter.tensor_values import aligned

COMPARISONS = OperatorTable()


def _pairwise(name: str, function: Callable[[Tensor, Tensor], Tensor]) -> None:
    def compute(_node: Node, a: Tensor, b: Tensor) -> Tensor:
        return function(*aligned(a, b))

    COMPARISONS.add(name, compute)


_pairwise("And", torch.logical_and)
_pairwise("Equal", torch.eq)
_pairwise("Greater", torch.gt)
_pairwise("GreaterOrEqual", torch.ge)
_pairwise("Less", torch.lt)
_pairwise("LessOrEqual", torch.le)
_pairwise("Or", torch.logical_or)
_pairwise("Xor", torch.logical_xor)
COMPARISONS.add_unary("Not", torch.logical_not)
COMPARISONS.add_unary("IsNaN", torch.isnan)


@COMPARISONS.operator("IsInf")
def is_infinite(node: Node, x: Tensor) -> Tensor:
    """Which numbers are infinite, of the signs that are asked for."""
    above = torch.isposinf(x) & node.flag("detect_positive", True)
    return above | (torch.isneginf(x) & node.flag("detect_negative", True))


@COMPARISONS.operator("Where")
def where(_node: Node, condition: Tensor, yes: Tensor, no: Tensor) -> Tensor:
    """The one tensor's numbers where a condition holds, elsewhere the other's."""
    condition, yes, no = aligned(condition, yes, no)
    return torch.where(condition, yes, no)
