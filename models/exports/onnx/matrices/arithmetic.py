"""Arithmetic on values that are known when a file is loaded: its runtime computes them once.

Everything here reads numbers of the file alone. Positions are computed, too: as numbers they would
take more room than what they place.
"""

from functools import partial
from typing import Any

import onnx

from models.exports.onnx.graph import Graph

FLOAT, DOUBLE = onnx.TensorProto.FLOAT, onnx.TensorProto.DOUBLE
INTEGER, INTEGER_32 = onnx.TensorProto.INT64, onnx.TensorProto.INT32
BOOLEAN = onnx.TensorProto.BOOL
_SWAPPED = [0, 2, 1]


def cast(graph: Graph, value: str, element: int = FLOAT) -> str:
    """The same numbers in another type."""
    return graph.apply("Cast", value, to=element)


def counted(graph: Graph, stop: int) -> str:
    """0, 1, ... stop-1."""
    return graph.apply("Range", graph.integer(0), graph.integer(stop), graph.integer(1))


def grid(graph: Graph, rows: int, columns: int) -> tuple[str, str]:
    """Numbers of the rows `[rows, 1]` and of the columns `[1, columns]`."""
    row, column = (
        graph.once((counted, count), partial(counted, graph, count)) for count in (rows, columns)
    )
    return (
        graph.apply("Unsqueeze", row, graph.integers(1)),
        graph.apply("Unsqueeze", column, graph.integers(0)),
    )


def identity(graph: Graph, rows: int, columns: int, element: int = FLOAT) -> str:
    """1 where row and column have one number, else 0: `[rows, columns]`."""

    def make() -> str:
        return cast(graph, graph.apply("Equal", *grid(graph, rows, columns)), element)

    return graph.once((identity, rows, columns, element), make)


def transposed(graph: Graph, stack: str) -> str:
    """`[G, a, b]` -> `[G, b, a]`."""
    return graph.once((transposed, stack), lambda: graph.apply("Transpose", stack, perm=_SWAPPED))


def product(graph: Graph, *matrices: str) -> str:
    """Of stacks of matrices, from the left."""
    first, *others = matrices
    for other in others:
        first = graph.apply("MatMul", first, other)
    return first


def total(graph: Graph, *values: str) -> str:
    """The sum of values."""
    first, *others = values
    for other in others:
        first = graph.apply("Add", first, other)
    return first


def part(graph: Graph, value: str, start: int, stop: int, *, axis: int = 0) -> str:
    """The places start..stop-1 of an axis."""
    ends: list[Any] = [graph.integers(number) for number in (start, stop, axis)]
    return graph.apply("Slice", value, *ends)


def by_rows(graph: Graph, matrix: str, numbers: str) -> str:
    """Each row of matrices `[G, a, b]` times one of the numbers `[G, a]`."""
    return graph.apply("Mul", matrix, graph.apply("Unsqueeze", numbers, graph.integers(2)))


def by_columns(graph: Graph, matrix: str, numbers: str) -> str:
    """Each column of matrices `[G, a, b]` times one of the numbers `[G, b]`."""
    return graph.apply("Mul", matrix, graph.apply("Unsqueeze", numbers, graph.integers(1)))
