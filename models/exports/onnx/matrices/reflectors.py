"""Products of reflectors, with and without singular values between them.

A file holds the reflectors' entries. `Q = I - Z^T T Z` of rows Z of length sqrt(2), where
`T = (I + striu(Z Z^T))^-1` (models/math/README.md, eq. 2), so that `Q_U S Q_V^T` is a diagonal and
two thin matrices. All of it is computed in double precision: many reflectors lose digits.
"""

from math import sqrt

from models.exports.onnx.graph import Graph
from models.exports.onnx.matrices.arithmetic import (
    DOUBLE,
    by_columns,
    by_rows,
    cast,
    grid,
    identity,
    product,
    transposed,
)
from models.exports.onnx.matrices.numbers import parameter
from models.exports.onnx.matrices.stored import Factors, Stored
from models.parametrizations.householder import HouseholderLinear
from models.parametrizations.householder_svd import HouseholderSvdLinear
from models.parametrizations.parts.staircase import Staircase


def householder(graph: Graph, linear: HouseholderLinear) -> Stored:
    """`Q diag(d)`, d of 1 but for the sign of a 1 x 1 reflector."""
    num_matrices, size = linear.num_matrices, linear.in_features

    def factors() -> Factors:
        diagonal = _signs(graph, linear.u)
        rows = _rows(graph, linear.u)
        seen = by_columns(graph, rows, cast(graph, diagonal, DOUBLE))
        right = product(graph, _inverse(graph, linear.u, rows), seen)
        left = graph.apply("Neg", transposed(graph, rows))
        return _factors(graph, left, right, diagonal, num_matrices, size)

    return Stored(graph, (num_matrices, size, size), factors=factors)


def _signs(graph: Graph, side: Staircase) -> str:
    """`[G, n]`: 1, and the sign of the 1 x 1 reflector at the end."""
    num_matrices, size = side.entries.shape[0], side.size
    signed = 0 if side.sign is None else 1
    shape = graph.integers(num_matrices, size - signed)
    ones = graph.apply("Add", graph.apply("ConstantOfShape", shape), graph.number(1.0))
    if side.sign is None:
        return ones
    return graph.apply("Concat", ones, graph.constant(side.sign.unsqueeze(1)), axis=1)


def householder_svd(graph: Graph, linear: HouseholderSvdLinear) -> Stored:
    """`Q_U S Q_V^T`."""
    num_matrices, out, size = linear.num_matrices, linear.out_features, linear.in_features

    def singular_values() -> str:
        return graph.constant(linear.v.signed(linear.u.signed(linear.singular_values())))

    def sides() -> tuple[str, str, str]:
        """L and R of double precision, and D."""
        values = singular_values()
        u, v = _rows(graph, linear.u), _rows(graph, linear.v)
        spectrum = _rectangle(graph, cast(graph, values, DOUBLE), out, size)
        # S - S V^T T_V^T V, with the product before V kept apart.
        back = product(
            graph, spectrum, transposed(graph, v), transposed(graph, _inverse(graph, linear.v, v))
        )
        inner = graph.apply("Sub", spectrum, product(graph, back, v))
        forth = product(graph, _inverse(graph, linear.u, u), product(graph, u, inner))
        left = graph.apply("Neg", graph.apply("Concat", transposed(graph, u), back, axis=2))
        return left, graph.apply("Concat", forth, v, axis=1), values

    def whole() -> str:
        left, right, values = sides()
        spectrum = _rectangle(graph, cast(graph, values, DOUBLE), out, size)
        return cast(graph, graph.apply("Add", spectrum, product(graph, left, right)))

    def factors() -> Factors:
        left, right, values = sides()
        return _factors(graph, left, right, values, num_matrices, size)

    shape = num_matrices, out, size
    return Stored(graph, shape, whole=whole, factors=factors if out == size else None)


def _factors(
    graph: Graph, left: str, right: str, diagonal: str, num_matrices: int, size: int
) -> Factors:
    """Those of square matrices, of L and R of double precision."""
    return Factors(
        left=cast(graph, left),
        right=cast(graph, right),
        diagonal=diagonal,
        count=num_matrices,
        num_right=num_matrices,
        rows=size,
        columns=size,
    )


def _rectangle(graph: Graph, values: str, rows: int, columns: int) -> str:
    """`[G, rows, columns]` with numbers `[G, min(rows, columns)]` on the diagonal."""
    places = identity(graph, rows, columns, DOUBLE)
    spread = by_rows if rows <= columns else by_columns
    return spread(graph, graph.apply("Unsqueeze", places, graph.integers(0)), values)


def _rows(graph: Graph, side: Staircase) -> str:
    """Rows Z `[G, m, n]` of length sqrt(2), in double precision; a zero row stays one."""
    count, size = side.count, side.size
    place, held = graph.once((_rows, count, size), lambda: _places(graph, count, size))
    entries = parameter(graph, side, "entries", element=DOUBLE)
    spread = graph.apply("Gather", entries, place, axis=1)
    rows = graph.apply("Mul", spread, held)
    squares = graph.apply("Mul", rows, rows)
    squares = graph.apply("ReduceSum", squares, graph.integers(2))
    length = graph.apply("Max", graph.apply("Sqrt", squares), graph.double(_SHORTEST))
    return graph.apply("Mul", graph.apply("Div", rows, length), graph.double(sqrt(2)))


def _places(graph: Graph, count: int, size: int) -> tuple[str, str]:
    """Where the entries of rows `[m, n]` stand among the packed ones, and which there are."""
    row, column = grid(graph, count, size)
    # Entry (j, c), c >= j, is the j n - j (j - 1) / 2 + c - j th.
    before = graph.apply("Mul", row, graph.apply("Sub", row, graph.integer(1)))
    place = graph.apply(
        "Sub",
        graph.apply("Mul", row, graph.integer(size - 1)),
        graph.apply("Div", before, graph.integer(2)),
    )
    held = graph.apply("Not", graph.apply("Less", column, row))
    place = graph.apply("Where", held, graph.apply("Add", place, column), graph.integer(0))
    return place, cast(graph, held, DOUBLE)


def _inverse(graph: Graph, side: Staircase, rows: str) -> str:
    """`(I + N)^-1` of `N = striu(Z Z^T)`, as `(I - N)(I + N^2)(I + N^4)...`: N^m is 0."""
    gram = product(graph, rows, transposed(graph, rows))
    power = graph.apply("Neg", graph.apply("Trilu", gram, graph.integer(1)))
    one = identity(graph, side.count, side.count, DOUBLE)
    result, reach = graph.apply("Add", one, power), 2
    while reach < side.count:
        power = product(graph, power, power)
        result = product(graph, result, graph.apply("Add", one, power))
        reach *= 2
    return result


_SHORTEST = 1e-30
"""Divides a row of zeros."""
