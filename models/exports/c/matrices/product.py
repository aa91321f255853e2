"""What a matrix product in C is, and the products of matrices that are whole or thin."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from torch import Tensor

from models.exports.c.parameters import Stored
from models.exports.c.source import Source
from models.exports.c.tables import FLOATS, Matrix

Write: TypeAlias = Callable[[str, str, str], str]


@dataclass(frozen=True)
class Span:
    """The matrices start..stop-1 of a stack, and the name that their tables begin with."""

    name: str
    start: int
    stop: int

    @property
    def count(self) -> int:
        """How many they are."""
        return self.stop - self.start

    @property
    def cut(self) -> slice:
        """Their places."""
        return slice(self.start, self.stop)


@dataclass(frozen=True)
class Product:
    """`y = W x` in C; all matrices of a span read one x, and write one after the other."""

    rows: int
    """Numbers of y"""
    columns: int
    """Numbers of x"""
    scratch: int
    """Numbers of t, which it needs beside them"""
    write: Write
    """The statements, for three places y, x and t that do not overlap"""


def pays(source: Source, *, numbers: int, operations: int, whole: int) -> bool:
    """Whether factors that are stored are kept: they save more numbers than they cost operations.

    `whole` is both for the matrix. What counts is the size alone: whatever the numbers are, the
    files of a model have one size. Of few bits factors always are: what is made of them is not.
    """
    return source.tables.bits is not None or few_enough(numbers, operations, whole)


def few_enough(numbers: int, operations: int, whole: int) -> bool:
    """Whether factors save more numbers of 32 bits than they cost operations."""
    return numbers + operations < 2 * whole


def multiply(source: Source, table: Matrix) -> Write:
    """`y = W x` with the table of matrices."""
    add = added(source, table)

    def write(y: str, x: str, _t: str) -> str:
        lines = [source.call("clear", y, table.rows), add(y, x)]
        if table.by_row is not None:
            scale = table.by_row
            lines.append(source.call(f"stretch{scale.suffix}", y, scale.name, table.rows))
        return "\n".join(lines)

    return write


def added(source: Source, table: Matrix) -> Callable[[str, str], str]:
    """`y += W x` but for the scales of rows."""
    rows, columns = table.rows // table.parts, table.columns

    def write(y: str, x: str) -> str:
        lines: list[str] = []
        for part in range(table.parts):
            place = at(table.name, part * columns * table.places)
            scale = column_scales(table, str(part * columns))
            function = f"accumulate{table.encoding.suffix}"
            lines.append(source.call(function, at(y, part * rows), x, place, *scale, rows, columns))
        return "\n".join(lines)

    return write


def column_scales(table: Matrix, first: str = "0") -> list[str]:
    """The argument of `accumulate8` and `accumulate4` for the scales from a column on."""
    if table.encoding is FLOATS:
        return []
    if table.by_column is None:
        return ["0"]
    return [table.by_column.name if first == "0" else f"{table.by_column.name} + {first}"]


def looked_up(source: Source, table: Matrix, y: str, place: str) -> str:
    """Statements for y = a column of a matrix of `Tables.vectors`, or 0 where there is no such."""
    rows = table.rows
    column = added_column(source, table, y, place)
    lines = [
        source.call("clear", y, rows),
        f"if ({place} >= 0 && {place} < {table.columns}) {{",
        *(f"    {line}" for line in column.split("\n")),
        "}",
    ]
    if table.by_row is not None:
        lines.append(source.call(f"stretch{table.by_row.suffix}", y, table.by_row.name, rows))
    return "\n".join(lines)


def one_hot(source: Source, y: str, place: str, count: int) -> str:
    """Statements for y = 0 but for a single 1, or 0 altogether where there is no such place."""
    inside = f"{place} >= 0 && {place} < {count}"
    return f"{source.call('clear', y, count)}\nif ({inside}) {{\n    ({y})[{place}] = 1.0f;\n}}"


def added_column(source: Source, table: Matrix, y: str, place: str) -> str:
    """Statements for y += a column of a matrix of `Tables.vectors`, but for the scales of rows."""
    where = f"{table.name} + {place} * {table.places}"
    if table.encoding is FLOATS:
        return source.call("add", y, where, table.rows)
    scale = column_scales(table, place)
    function = f"accumulate{table.encoding.suffix}"
    call = source.call(function, y, "&one", where, *scale, table.rows, 1)
    return f"const float one = 1.0f;\n{call}"


def whole_product(source: Source, name: str, weight: Stored | Tensor) -> Product:
    """Matrices `[G, out, in]` as one of `G*out` rows; a tensor is made of parameters."""
    stored = weight if isinstance(weight, Stored) else Stored(weight)
    rows, columns = stored.numbers.flatten(0, -2).shape
    table = source.tables.matrix(name, stored, f"{rows} x {columns}")
    return Product(rows, columns, 0, multiply(source, table))


def complex_product(source: Source, name: str, real: Stored, imaginary: Stored) -> Product:
    """A complex matrix `A + iB` of parts `[out, in]`, for vectors `(re | im)`."""
    rows, columns = real.numbers.shape
    parts = {"real": real, "imaginary": imaginary}
    a, b = (
        source.tables.matrix(f"{name}_{part}", weight, f"the {part} part, {rows} x {columns}")
        for part, weight in parts.items()
    )
    by_a, by_b = (multiply(source, table) for table in (a, b))

    def write(y: str, x: str, t: str) -> str:
        below, right = f"{y} + {rows}", f"{x} + {columns}"
        return "\n".join(
            [
                by_a(y, x, ""),
                by_b(t, right, ""),
                source.call("take", y, t, rows),
                by_a(below, right, ""),
                by_b(t, x, ""),
                source.call("add", below, t, rows),
            ]
        )

    return Product(2 * rows, 2 * columns, rows, write)


@dataclass(frozen=True)
class ThinTables:
    """`W_g = L_g R_g + diag(D_g)` of a span."""

    rights: Matrix
    """All R one below the other"""
    lefts: tuple[Matrix, ...]
    """The matrices L behind each R, one below the other"""
    diagonal: str | None
    size: int
    """Rows of a W"""
    columns: int
    rank: int
    count: int
    """Matrices of the span"""

    @property
    def inner(self) -> int:
        """Numbers between R and L."""
        return self.rank * len(self.lefts)


def thin_tables(
    source: Source,
    span: Span,
    left: Stored,
    right: Stored,
    diagonal: Tensor | None,
    *,
    right_key: object = None,
) -> ThinTables:
    """Tables of L `[G, out, d]`, R `[G / s, d, in]` and D `[G, out]`.

    What has the `right_key` of another span has its table of R too.
    """
    count, size, rank = left.numbers.shape
    num_right, _, columns = right.numbers.shape
    tables, rows = source.tables, (count // num_right) * size
    lefts = tuple(
        tables.matrix(
            f"{span.name}_left_{index}" if num_right > 1 else f"{span.name}_left",
            part,
            f"L, {rows} x {rank}",
        )
        for index, part in enumerate(left.chunks(num_right))
    )
    rights = tables.once(
        span if right_key is None else right_key,
        lambda: tables.matrix(f"{span.name}_right", right, f"R, {num_right * rank} x {columns}"),
    )
    kept = None if diagonal is None else tables.numbers(f"{span.name}_diagonal", diagonal, "D")
    return ThinTables(rights, lefts, kept, size, columns, rank, count)


def thin_product(
    source: Source, thin: ThinTables, middle: Callable[[str], str] | None = None
) -> Product:
    """`L_g (R x) + D_g x` for each g; `middle` writes what is done to `R x` in between."""
    rows = thin.count // len(thin.lefts) * thin.size
    project = multiply(source, thin.rights)

    def write(y: str, x: str, t: str) -> str:
        lines = [project(t, x, "")]
        if middle is not None:
            lines.append(middle(t))
        for index, left in enumerate(thin.lefts):
            expand = multiply(source, left)
            lines.append(expand(at(y, index * rows), at(t, index * thin.rank), ""))
        if thin.diagonal is not None:
            for index in range(thin.count):
                place = index * thin.size
                diagonal = at(thin.diagonal, place)
                lines.append(source.call("add_product", at(y, place), diagonal, x, thin.size))
        return "\n".join(lines)

    return Product(thin.count * thin.size, thin.columns, thin.inner, write)


def at(place: str, offset: int) -> str:
    """A place so many numbers further on."""
    return f"{place} + {offset}" if offset else place
