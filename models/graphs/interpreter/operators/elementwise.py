"""Arithmetic, number by number."""

import math
from collections.abc import Callable
from functools import reduce

import torch
from torch import Tensor

from models.graphs.interpreter.node import Node
from models.graphs.interpreter.operators.operator_table import OperatorTable, Result
from models.graphs.interpreter.tensor_values import aligned

ELEMENTWISE = OperatorTable()

for _name, _function in (
    ("Abs", torch.abs),
    ("Acos", torch.acos),
    ("Acosh", torch.acosh),
    ("Asin", torch.asin),
    ("Asinh", torch.asinh),
    ("Atan", torch.atan),
    ("Atanh", torch.atanh),
    ("Ceil", torch.ceil),
    ("Cos", torch.cos),
    ("Cosh", torch.cosh),
    ("Erf", torch.erf),
    ("Exp", torch.exp),
    ("Floor", torch.floor),
    ("Log", torch.log),
    ("Neg", torch.neg),
    ("Reciprocal", torch.reciprocal),
    # Both round halves to the even number.
    ("Round", torch.round),
    ("Sign", torch.sign),
    ("Sin", torch.sin),
    ("Sinh", torch.sinh),
    ("Tan", torch.tan),
):
    ELEMENTWISE.add_unary(_name, _function)


def root(x: Tensor) -> Tensor:
    """A square root whose gradient at 0 is 0.

    The true one is infinite, and makes NaN of lengths that are 0: spectra of silence have them.
    """
    is_zero = x == 0
    return torch.where(is_zero, torch.zeros_like(x), torch.where(is_zero, 1, x).sqrt())


ELEMENTWISE.add_unary("Sqrt", root)


def _of_many(name: str, function: Callable[[Tensor, Tensor], Tensor]) -> None:
    def compute(_node: Node, *values: Tensor) -> Tensor:
        return reduce(function, aligned(*values))

    ELEMENTWISE.add(name, compute)


ELEMENTWISE.add_pairwise("Add", torch.add)
ELEMENTWISE.add_pairwise("Sub", torch.sub)
ELEMENTWISE.add_pairwise("Mul", torch.mul)
_of_many("Max", torch.maximum)
_of_many("Min", torch.minimum)
_of_many("Sum", torch.add)


@ELEMENTWISE.operator("Mean")
def mean_of_many(_node: Node, *values: Tensor) -> Tensor:
    """The mean of tensors, which are broadcast."""
    return reduce(torch.add, aligned(*values)) / len(values)


@ELEMENTWISE.operator("Div")
def divide(_node: Node, a: Tensor, b: Tensor) -> Tensor:
    """A quotient; of whole numbers that without its fraction, as in C."""
    a, b = aligned(a, b)
    if a.is_floating_point():
        return a / b
    return torch.div(a, b, rounding_mode="trunc")


@ELEMENTWISE.operator("Mod")
def modulo(node: Node, a: Tensor, b: Tensor) -> Tensor:
    """A remainder with the divisor's sign, or with `fmod` that of what is divided."""
    a, b = aligned(a, b)
    return torch.fmod(a, b) if node.flag("fmod") else torch.remainder(a, b)


@ELEMENTWISE.operator("Pow")
def power(_node: Node, base: Tensor, exponent: Tensor) -> Tensor:
    """A power, of the type of its base."""
    base, exponent = aligned(base, exponent)
    # Of one number the gradient is known faster.
    if exponent.numel() == 1 and not exponent.requires_grad and exponent.dim() <= base.dim():
        number = exponent.item()
        return root(base) if number == 0.5 else torch.pow(base, number).to(base.dtype)
    return torch.pow(base, exponent).to(base.dtype)


@ELEMENTWISE.operator("Clip", until=10)
def clip_by_attributes(node: Node, x: Tensor) -> Tensor:
    """Numbers within bounds that the node has."""
    return torch.clamp(x, node.real("min", -math.inf), node.real("max", math.inf))


@ELEMENTWISE.operator("Clip", since=11)
def clip(_node: Node, x: Tensor, low: Tensor | None = None, high: Tensor | None = None) -> Tensor:
    """Numbers within bounds that are inputs; the upper one wins where they cross."""
    low, high = (None if bound is None else aligned(x, bound)[1] for bound in (low, high))
    # Its gradient takes a third of the time of those of a maximum and a minimum.
    return x if low is None and high is None else torch.clamp(x, low, high)


@ELEMENTWISE.operator("BitShift")
def bit_shift(node: Node, a: Tensor, b: Tensor) -> Tensor:
    """Bits moved to the left or to the right."""
    a, b = aligned(a, b)
    return a << b if node.text("direction", "") == "LEFT" else a >> b


ELEMENTWISE.add_pairwise("BitwiseAnd", torch.bitwise_and)
ELEMENTWISE.add_pairwise("BitwiseOr", torch.bitwise_or)
ELEMENTWISE.add_pairwise("BitwiseXor", torch.bitwise_xor)
ELEMENTWISE.add_unary("BitwiseNot", torch.bitwise_not)


@ELEMENTWISE.operator("Identity")
def identity(_node: Node, x: Tensor) -> Tensor:
    """The same tensor."""
    return x


def _trains(node: Node) -> str | None:
    return "in training" if node.has_input(2) else None


@ELEMENTWISE.operator("Dropout", fault=_trains)
def dropout(node: Node, x: Tensor, *_ratio: Tensor | None) -> Result:
    """The same tensor: a file answers without dropout. The mask, where it is read, is all true."""
    if not node.wants(1):
        return x
    return x, torch.ones_like(x, dtype=torch.bool)
