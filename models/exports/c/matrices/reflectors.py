"""Products of Householder reflectors, applied one after the other."""

from models.exports.c.matrices.product import Product, Span, at, pays, whole_product
from models.exports.c.parameters import integers
from models.exports.c.source import Source
from models.exports.c.tables import Vectors
from models.math.householder import staircase_entries
from models.parametrizations.householder import HouseholderLinear
from models.parametrizations.householder_svd import HouseholderSvdLinear
from models.parametrizations.parts.staircase import Staircase


def householder(source: Source, linear: HouseholderLinear, span: Span) -> Product:
    """`H(y_1) ... H(y_m)` and the sign of the 1 x 1 reflector, which acts first."""
    side, size = linear.u, linear.in_features
    entries = staircase_entries(size, side.count)
    if not pays(source, numbers=entries, operations=2 * entries, whole=size**2):
        return whole_product(source, span.name, linear.form().whole()[span.cut])
    reflectors = _Side(source, side, span, "reflectors", backwards=True)
    signs = None
    if side.sign is not None:
        signs = source.tables.numbers(f"{span.name}_signs", side.sign[span.cut])

    def write(y: str, x: str, _t: str) -> str:
        lines: list[str] = []
        for index in range(span.count):
            place = at(y, index * size)
            lines.append(source.call("copy", place, x, size))
            if signs is not None:
                lines.append(f"({place})[{size - 1}] *= {signs}[{index}];")
            lines += reflectors.write(place, index)
        return "\n".join(lines)

    return Product(span.count * size, size, 0, write)


def householder_svd(source: Source, linear: HouseholderSvdLinear, span: Span) -> Product:
    """`U diag(s) V^T x`, for each matrix of the span."""
    rows, columns = linear.out_features, linear.in_features
    shorter = min(rows, columns)
    entries = staircase_entries(rows, linear.u.count) + staircase_entries(columns, linear.v.count)
    numbers, operations = entries + shorter, 2 * entries + shorter
    if not pays(source, numbers=numbers, operations=operations, whole=rows * columns):
        return whole_product(source, span.name, linear.form().whole()[span.cut])
    u = _Side(source, linear.u, span, "u", backwards=True)
    v = _Side(source, linear.v, span, "v", backwards=False)
    # The 1 x 1 reflectors are signs, and act on the last singular value.
    sigma = linear.v.signed(linear.u.signed(linear.singular_values()))[span.cut]
    values = source.tables.numbers(f"{span.name}_sigma", sigma, "singular values")

    def write(y: str, x: str, t: str) -> str:
        lines: list[str] = []
        for index in range(span.count):
            place = at(y, index * rows)
            # Where W is square V's side can be made in y itself.
            inner = place if rows == columns else t
            lines.append(source.call("copy", inner, x, columns))
            lines += v.write(inner, index)
            if inner != place:
                lines.append(source.call("clear", place, rows))
                lines.append(source.call("copy", place, inner, shorter))
            lines.append(source.call("stretch", place, at(values, index * shorter), shorter))
            lines += u.write(place, index)
        return "\n".join(lines)

    return Product(span.count * rows, columns, 0 if rows == columns else columns, write)


class _Side:
    """The reflectors of a span's matrices in a table, in the order in which they act."""

    def __init__(
        self, source: Source, side: Staircase, span: Span, name: str, *, backwards: bool
    ) -> None:
        self._source, self._size, self._count = source, side.size, side.count
        self._order = range(side.count)[:: -1 if backwards else 1]
        if not side.count:
            # Of one dimension there is nothing but a sign, which is the values'.
            return
        bits = source.tables.bits
        all_rows = side.rows() if bits is None else side.spread(integers(side, "entries", bits))
        rows = all_rows[span.cut][:, list(self._order)]
        self._starts = list(self._order)
        self._table: Vectors = source.tables.reflectors(
            f"{span.name}_{name}",
            rows.flatten(0, 1),
            "reflectors, in the order in which they act",
            starts=self._starts * span.count,
        )

    def write(self, vector: str, matrix: int) -> list[str]:
        """Apply those of a matrix to a vector in place."""
        if not self._count:
            return []
        table, size = self._table, self._size
        places = sum(table.encoding.places(size - start) for start in self._starts)
        scale = [] if table.scale is None else [at(table.scale.name, matrix * self._count)]
        call = self._source.call(
            f"reflections{table.encoding.suffix}",
            vector,
            at(table.name, matrix * places),
            *scale,
            size,
            self._order[0],
            self._order.step,
            self._count,
        )
        return [call]
