"""Weights of operators that nothing more is known of, and those that are integers already."""

import math
from dataclasses import dataclass
from typing import ClassVar, Self

from models.graphs.layers.arrangement import Arrangement
from models.graphs.layers.role import Role, Use

_QUANTIZED_OPERATORS = frozenset(
    {
        "QuantizeLinear",
        "DequantizeLinear",
        "MatMulInteger",
        "ConvInteger",
        "QLinearMatMul",
        "QLinearConv",
    }
)


def by_first_axis(native: tuple[int, ...]) -> Arrangement:
    """A row for each entry of the first axis; a vector is one row."""
    columns = math.prod(native[1:] or native)
    return Arrangement.of_rows(native, columns=columns)


@dataclass(frozen=True)
class OtherRole(Role):
    """Any other use, by the rows of the first axis; only its bits change."""

    kind: ClassVar[str] = "other"

    @classmethod
    def of(cls, use: Use) -> Self | None:
        """Always."""
        return cls(by_first_axis(use.native))


@dataclass(frozen=True)
class QuantizedRole(Role):
    """Integers that the file already has; they are listed and left alone."""

    kind: ClassVar[str] = "already quantized"
    quantized: ClassVar[bool] = True

    @classmethod
    def of(cls, use: Use) -> Self | None:
        """All that quantized operators read: their scales are left alone as well."""
        if use.node.op_type not in _QUANTIZED_OPERATORS:
            return None
        return cls(by_first_axis(use.native))
