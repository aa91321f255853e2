"""Complex matrices on vectors `(re | im)`: of Fourier transforms, and in full."""

from collections.abc import Callable
from math import pi, sqrt
from typing import Any, NamedTuple, TypeAlias
from typing import cast as cast_type

import numpy as np
import torch
from torch import Tensor

from models.exports.onnx.graph import Graph
from models.exports.onnx.matrices.arithmetic import (
    DOUBLE,
    cast,
    grid,
    identity,
    product,
    transposed,
)
from models.exports.onnx.matrices.numbers import parameter
from models.exports.onnx.matrices.plain import whole_matrices
from models.exports.onnx.matrices.skew import real_form, skew_hermitian
from models.exports.onnx.matrices.stored import Stored
from models.linear import StructuredLinear
from models.parametrizations.dense import ComplexDenseLinear
from models.parametrizations.unitary_fft import UnitaryFftLinear
from models.parametrizations.unitary_full import UnitaryFullLinear

_Operation: TypeAlias = Callable[[Graph, str, str], str]

_linalg = cast_type(Any, torch.linalg)  # torch ships it without types

_SHORTEST = 1e-30
"""Divides a vector of zeros."""

_SQUARINGS, _TERMS = 5, 9
"""Of pi / 2^5 nine terms leave 1e-16."""


class _Complex(NamedTuple):
    """Real and imaginary parts, by names of values of double precision."""

    real: str
    imaginary: str


def unitary_fft(graph: Graph, linear: UnitaryFftLinear) -> Stored:
    """`D_3 R_2 F^-1 D_2 Pi R_1 F D_1` of phases and reflections (models/math/README.md, eq. 22)."""
    size, num_matrices = linear.slot.in_features, linear.num_matrices

    def whole() -> str:
        phases = parameter(graph, linear, "phases", element=DOUBLE)
        # [G, 1, n] each, to be multiplied with columns
        diagonals = [
            _Complex(graph.apply("Cos", angle), graph.apply("Sin", angle))
            for angle in graph.apply_many("Split", phases, outputs=3, axis=1)
        ]
        vectors = _reflections(graph, linear)
        order = graph.array(linear.get_buffer("_order").cpu().numpy().astype(np.int32))
        fourier = _fourier(graph, size)
        backward = _Complex(fourier.real, graph.apply("Neg", fourier.imaginary))
        # From the right: a diagonal on columns, on the rows of the whole by transposition.
        rows = _by_columns(graph, fourier, diagonals[0])
        rows = _reflected(graph, rows, vectors[0])
        rows = _Complex(*(graph.apply("Gather", part, order, axis=1) for part in rows))
        rows = _by_rows(graph, rows, diagonals[1])
        rows = _reflected(graph, _times(graph, backward, rows), vectors[1])
        rows = _by_rows(graph, rows, diagonals[2])
        return real_form(graph, cast(graph, rows.real), cast(graph, rows.imaginary))

    return Stored(graph, (num_matrices, 2 * size, 2 * size), whole=whole)


def complex_halves(graph: Graph, linear: StructuredLinear) -> Stored:
    """A and B of `A + iB`, of which the real form repeats each."""
    weight = whole_matrices(linear)
    size = weight.shape[1] // 2

    def whole() -> str:
        real = graph.constant(weight[:, :size, :size])
        return real_form(graph, real, graph.constant(weight[:, size:, :size]))

    return Stored(graph, (weight.shape[0], 2 * size, 2 * size), whole=whole)


def complex_dense(graph: Graph, linear: ComplexDenseLinear) -> Stored:
    """Both parts as they are stored."""
    size, axis = linear.slot.in_features, graph.integers(1)

    def whole() -> str:
        both = graph.apply_many("Split", parameter(graph, linear, "weight"), outputs=2, axis=1)
        return real_form(graph, *(graph.apply("Squeeze", part, axis) for part in both))

    return Stored(graph, (linear.num_matrices, 2 * size, 2 * size), whole=whole)


def unitary_full(graph: Graph, linear: UnitaryFullLinear) -> Stored:
    """`exp(K)` of a skew-Hermitian K, which has half the numbers of A and B.

    Whatever map made the matrix: every unitary one is such an exponential, of a K within ±pi. In
    few bits it is made of what is rounded, by the map itself.
    """
    if graph.root.bits is not None:
        return skew_hermitian(graph, linear) or complex_halves(graph, linear)
    packed = _packed_logarithm(linear)
    num_matrices, size = packed.shape[:2]

    def whole() -> str:
        numbers = cast(graph, graph.constant(packed), DOUBLE)
        real = graph.apply("Trilu", numbers, graph.integer(-1), upper=0)
        imaginary = graph.apply("Trilu", numbers, graph.integer(0), upper=1)
        above = graph.apply("Trilu", numbers, graph.integer(1), upper=1)
        scale = graph.double(0.5**_SQUARINGS)
        skew = _Complex(
            graph.apply("Mul", graph.apply("Sub", real, transposed(graph, real)), scale),
            graph.apply("Mul", graph.apply("Add", imaginary, transposed(graph, above)), scale),
        )
        power = _series(graph, skew, size)
        for _ in range(_SQUARINGS):
            power = _times(graph, power, power)
        return real_form(graph, cast(graph, power.real), cast(graph, power.imaginary))

    return Stored(graph, (num_matrices, 2 * size, 2 * size), whole=whole)


def _packed_logarithm(linear: UnitaryFullLinear) -> Tensor:
    """K `[G, n, n]`: real parts below the diagonal, imaginary ones on it and above."""
    weight = linear.form().whole().double()
    size = weight.shape[1] // 2
    unitary = torch.complex(weight[:, :size, :size], weight[:, size:, :size])
    values, vectors = _linalg.eig(unitary)
    # Vectors of one value need not be orthogonal to each other; those of two values are.
    vectors = _linalg.qr(vectors).Q
    skew: Tensor = (vectors * (1j * values.angle()).unsqueeze(-2)) @ vectors.mH
    return skew.real.tril(-1) + skew.imag.triu()


def _series(graph: Graph, skew: _Complex, size: int) -> _Complex:
    """`I + K (I + K / 2 (I + K / 3 ...))`."""
    one = identity(graph, size, size, DOUBLE)
    result: _Complex | None = None
    for term in range(_TERMS, 0, -1):
        share = graph.double(1 / term)
        inner = _Complex(*(graph.apply("Mul", part, share) for part in skew))
        if result is not None:
            inner = _times(graph, inner, result)
        result = _Complex(graph.apply("Add", one, inner.real), inner.imaginary)
    assert result is not None
    return result


def _fourier(graph: Graph, size: int) -> _Complex:
    """The unitary transform: `e^(-2 pi i j k / n) / sqrt n`, `[1, n, n]`."""
    row, column = grid(graph, size, size)
    # The remainder keeps angles within a turn, where cosines are exact.
    turns = graph.apply("Mod", graph.apply("Mul", row, column), graph.integer(size))
    turns = graph.apply("Unsqueeze", cast(graph, turns, DOUBLE), graph.integers(0))
    angle = graph.apply("Mul", turns, graph.double(-2 * pi / size))
    scale = graph.double(1 / sqrt(size))
    return _Complex(
        graph.apply("Mul", graph.apply("Cos", angle), scale),
        graph.apply("Mul", graph.apply("Sin", angle), scale),
    )


def _reflections(graph: Graph, linear: UnitaryFftLinear) -> list[_Complex]:
    """Both vectors `[G, n, 1]` of length sqrt(2)."""
    vectors = parameter(graph, linear, "reflections", element=DOUBLE)
    squares = graph.apply("Mul", vectors, vectors)
    squares = graph.apply("ReduceSum", squares, graph.integers(2), keepdims=1)
    length = graph.apply("Max", graph.apply("Sqrt", squares), graph.double(_SHORTEST))
    vectors = graph.apply("Mul", graph.apply("Div", vectors, length), graph.double(sqrt(2)))
    columns = (
        transposed(graph, vector)
        for vector in graph.apply_many("Split", vectors, outputs=2, axis=1)
    )
    return [_Complex(*graph.apply_many("Split", both, outputs=2, axis=1)) for both in columns]


def _times(graph: Graph, left: _Complex, right: _Complex) -> _Complex:
    """The product of complex matrices."""
    return _combined(graph, product, left, right)


def _combined(graph: Graph, operation: _Operation, left: _Complex, right: _Complex) -> _Complex:
    """What a bilinear operation makes of complex numbers."""
    real = graph.apply(
        "Sub",
        operation(graph, left.real, right.real),
        operation(graph, left.imaginary, right.imaginary),
    )
    imaginary = graph.apply(
        "Add",
        operation(graph, left.real, right.imaginary),
        operation(graph, left.imaginary, right.real),
    )
    return _Complex(real, imaginary)


def _multiplied(graph: Graph, left: str, right: str) -> str:
    return graph.apply("Mul", left, right)


def _by_columns(graph: Graph, matrix: _Complex, diagonal: _Complex) -> _Complex:
    """`M D`; D is `[G, 1, n]`."""
    return _combined(graph, _multiplied, matrix, diagonal)


def _by_rows(graph: Graph, matrix: _Complex, diagonal: _Complex) -> _Complex:
    """`D M`."""
    column = _Complex(*(transposed(graph, part) for part in diagonal))
    return _combined(graph, _multiplied, matrix, column)


def _reflected(graph: Graph, matrix: _Complex, vector: _Complex) -> _Complex:
    """`R M = M - v (v^* M)`."""
    adjoint = _Complex(
        transposed(graph, vector.real), graph.apply("Neg", transposed(graph, vector.imaginary))
    )
    taken = _times(graph, vector, _times(graph, adjoint, matrix))
    return _Complex(
        graph.apply("Sub", matrix.real, taken.real),
        graph.apply("Sub", matrix.imaginary, taken.imaginary),
    )
