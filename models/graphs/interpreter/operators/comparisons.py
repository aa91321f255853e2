"""Comparisons, logic, and choices by them."""

import torch
from torch import Tensor

from models.graphs.interpreter.node import Node
from models.graphs.interpreter.operators.operator_table import OperatorTable
from models.graphs.interpreter.tensor_values import aligned

COMPARISONS = OperatorTable()

COMPARISONS.add_pairwise("And", torch.logical_and)
COMPARISONS.add_pairwise("Equal", torch.eq)
COMPARISONS.add_pairwise("Greater", torch.gt)
COMPARISONS.add_pairwise("GreaterOrEqual", torch.ge)
COMPARISONS.add_pairwise("Less", torch.lt)
COMPARISONS.add_pairwise("LessOrEqual", torch.le)
COMPARISONS.add_pairwise("Or", torch.logical_or)
COMPARISONS.add_pairwise("Xor", torch.logical_xor)
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
