"""Orthogonal matrices of skew ones A, for models of few bits: a file holds the integers of A.

No operator solves a system of equations or takes an exponential. Both are made of products, in
double precision, as many as the largest A needs that is let pass: what a file takes follows from
shapes. Matrices of a larger A are stored whole.
"""

import math
from collections.abc import Callable, Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from models.exports.onnx.graph import Graph
from models.exports.onnx.matrices.arithmetic import (
    DOUBLE,
    by_columns,
    cast,
    grid,
    identity,
    part,
    product,
    transposed,
)
from models.exports.onnx.matrices.numbers import parameter
from models.exports.onnx.matrices.plain import matrices
from models.exports.onnx.matrices.stored import Stored
from models.math.orthogonal_maps import (
    CAYLEY,
    EXPONENTIAL,
    OrthogonalMap,
    skew_hermitian_form,
    skew_matrix,
    skew_positions,
)
from models.parametrizations.factorized_svd import FactorizedSvdLinear
from models.parametrizations.unitary_full import UnitaryFullLinear

_SMALLEST = 1e-6
"""Of the eigenvalues of `(I - A^2) / c`; below them the iteration of `_cayley` is too short."""
_STEPS = 14
"""From there to a relative error of 2e-14."""

_SQUARINGS, _TERMS = 14, 9
"""Of an A of norm `0.1 * 2^14` nine terms leave 1e-16 of a factor, and 2e-12 of the product."""


def factorized_svd(graph: Graph, linear: FactorizedSvdLinear) -> Stored:
    """`U diag(s) V^T`; in 32 bits the matrices have no more numbers than both halves."""
    size, num_matrices = linear.in_features, linear.num_matrices
    packed = torch.cat((linear.u, linear.v)).detach().double()
    skew = skew_matrix(packed, skew_positions(size), size=size)
    if graph.root.bits is None or not _is_within_reach(linear.orthogonal_map, skew):
        return matrices(graph, linear)

    def whole() -> str:
        sides = [parameter(graph, linear, side, element=DOUBLE) for side in ("u", "v")]
        skew = _unpacked(graph, graph.apply("Concat", *sides, axis=0), size)
        both = _MAPS[linear.orthogonal_map].write(graph, skew, size)
        left, right = (
            part(graph, both, start, start + num_matrices) for start in (0, num_matrices)
        )
        if linear.p is not None:
            values = graph.constant(linear.singular_values())
            left = by_columns(graph, left, cast(graph, values, DOUBLE))
        return cast(graph, product(graph, left, transposed(graph, right)))

    return Stored(graph, (num_matrices, size, size), whole=whole)


def skew_hermitian(graph: Graph, linear: UnitaryFullLinear) -> Stored | None:
    """The real form of the unitary matrix that follows from the real form of A; None: too large."""
    size, num_matrices = linear.slot.in_features, linear.num_matrices
    skew = skew_hermitian_form(linear.a.detach().double())
    if not _is_within_reach(linear.orthogonal_map, skew):
        return None

    def whole() -> str:
        packed = parameter(graph, linear, "a", element=DOUBLE)
        below, above, strictly = (
            graph.apply("Trilu", packed, graph.integer(diagonal), upper=upper)
            for diagonal, upper in ((-1, 0), (0, 1), (1, 1))
        )
        real = graph.apply("Sub", below, transposed(graph, below))
        imaginary = graph.apply("Add", above, transposed(graph, strictly))
        skew = real_form(graph, real, imaginary)
        return cast(graph, _MAPS[linear.orthogonal_map].write(graph, skew, 2 * size))

    return Stored(graph, (num_matrices, 2 * size, 2 * size), whole=whole)


def real_form(graph: Graph, real: str, imaginary: str) -> str:
    """`[[A, -B], [B, A]]`."""
    above = graph.apply("Concat", real, graph.apply("Neg", imaginary), axis=2)
    below = graph.apply("Concat", imaginary, real, axis=2)
    return graph.apply("Concat", above, below, axis=1)


def _unpacked(graph: Graph, packed: str, size: int) -> str:
    """`[G, n (n - 1) / 2]` above the diagonal, its negative below: `[G, n, n]`."""
    row, column = grid(graph, size, size)
    # Entry (i, j), j > i, is the i (2 n - 3 - i) / 2 + j - 1 th.
    before = graph.apply("Mul", row, graph.apply("Sub", graph.integer(2 * size - 3), row))
    place = graph.apply("Div", before, graph.integer(2))
    place = graph.apply("Add", place, graph.apply("Sub", column, graph.integer(1)))
    place = graph.apply("Where", graph.apply("Less", row, column), place, graph.integer(0))
    spread = graph.apply("Gather", packed, place, axis=1)
    above = graph.apply("Trilu", spread, graph.integer(1), upper=1)
    return graph.apply("Sub", above, transposed(graph, above))


def _cayley(graph: Graph, skew: str, size: int) -> str:
    """`(I + A)^-1 (I - A) = (I - A)^2 (I - A^2)^-1`.

    `Y = (I - A^2) / c` is symmetric, with c the bound of `_bound` beside 1: its eigenvalues lie in
    l..1. With `m = 2 / (1 + l)` those of `m Y (2 I - m Y)` lie in `4 l / (1 + l)^2`..1. Whatever is
    multiplied by the same `m (2 I - m Y)` in each step becomes its product with the inverse of Y.
    """
    one = identity(graph, size, size, DOUBLE)
    two = graph.apply("Add", one, one)
    square = product(graph, skew, skew)
    entries = graph.apply("Mul", square, square)
    entries = graph.apply("ReduceSum", entries, graph.integers(1, 2), keepdims=1)
    bound = graph.apply("Sqrt", graph.apply("Mul", entries, graph.double(0.5)))
    bound = graph.apply("Add", bound, graph.double(1.0))
    state = graph.apply("Div", graph.apply("Sub", one, square), bound)
    numerator = graph.apply("Add", graph.apply("Sub", one, graph.apply("Add", skew, skew)), square)
    result = graph.apply("Div", numerator, bound)
    least = _SMALLEST
    for step in range(_STEPS):
        factor = 2 / (1 + least)
        least = least * factor**2
        state = graph.apply("Mul", state, graph.double(factor))
        rest = graph.apply("Sub", two, state)
        result = product(graph, graph.apply("Mul", result, graph.double(factor)), rest)
        if step + 1 < _STEPS:
            state = product(graph, state, rest)
    return result


def _exponential(graph: Graph, skew: str, size: int) -> str:
    """`(I + K (I + K / 2 (I + K / 3 ...)))` of `K = A / 2^s`, squared s times."""
    one = identity(graph, size, size, DOUBLE)
    small = graph.apply("Mul", skew, graph.double(0.5**_SQUARINGS))
    result = one
    for term in range(_TERMS, 0, -1):
        inner = graph.apply("Mul", small, graph.double(1 / term))
        if result != one:
            inner = product(graph, inner, result)
        result = graph.apply("Add", one, inner)
    for _ in range(_SQUARINGS):
        result = product(graph, result, result)
    return result


class _Map(NamedTuple):
    write: Callable[[Graph, str, int], str]
    largest: float
    """Of the squared norm of A, as `_bound` has it."""


_MAPS: Mapping[OrthogonalMap, _Map] = {
    CAYLEY: _Map(_cayley, 1 / _SMALLEST - 1),
    EXPONENTIAL: _Map(_exponential, (0.1 * 2**_SQUARINGS) ** 2),
}


def _bound(skew: Tensor) -> float:
    """At least the largest `|eigenvalue|^2` of skew matrices: those of A^2 come in pairs."""
    return float((skew @ skew).square().sum(dim=(-2, -1)).amax()) ** 0.5 / math.sqrt(2)


def _is_within_reach(orthogonal_map: OrthogonalMap, skew: Tensor) -> bool:
    return _bound(skew) <= _MAPS[orthogonal_map].largest
