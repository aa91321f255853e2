"""What a matrix product in C is, and the products of matrices that are whole or thin."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Tensor

from models.exports.c.source import Source
from models.exports.c.tables import Vectors

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


def pays(*, numbers: int, operations: int, whole: int) -> bool:
    """Whether factors are kept: together they save more numbers than they cost operations.

    `whole` is both for the matrix. What counts is the size alone: whatever the numbers are, the
    files of a model have one size.
    """
    return numbers + operations < 2 * whole


def multiply(source: Source, table: Vectors, *, rows: int, columns: int) -> Write:
    """`y = W x` with the table of a matrix."""
    suffix = table.encoding.suffix

    def write(y: str, x: str, _t: str) -> str:
        lines = [
            source.call("clear", y, rows),
            source.call(f"accumulate{suffix}", y, x, table.name, rows, columns),
        ]
        if table.scale is not None:
            lines.append(source.call("stretch", y, table.scale, rows))
        return "\n".join(lines)

    return write


def whole_product(source: Source, name: str, weight: Tensor, *, stored: bool) -> Product:
    """Matrices `[G, out, in]` as one of `G*out` rows."""
    weight = weight.flatten(0, 1)
    rows, columns = weight.shape
    about = f"{rows} x {columns}"
    table = source.tables.matrix(name, weight, about, stored=stored)
    return Product(rows, columns, 0, multiply(source, table, rows=rows, columns=columns))


def complex_product(
    source: Source, name: str, real: Tensor, imaginary: Tensor, *, stored: bool
) -> Product:
    """A complex matrix `A + iB` of parts `[out, in]`, for vectors `(re | im)`."""
    rows, columns = real.shape
    parts = {"real": real, "imaginary": imaginary}
    a, b = (
        source.tables.matrix(
            f"{name}_{part}",
            weight,
            f"the {part} part, {rows} x {columns}",
            stored=stored,
        )
        for part, weight in parts.items()
    )
    by_a, by_b = (multiply(source, table, rows=rows, columns=columns) for table in (a, b))

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

    rights: Vectors
    """All R one below the other"""
    lefts: tuple[Vectors, ...]
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
    left: Tensor,
    right: Tensor,
    diagonal: Tensor | None,
    *,
    stored: bool,
    right_key: object = None,
) -> ThinTables:
    """Tables of L `[G, out, d]`, R `[G / s, d, in]` and D `[G, out]`.

    What has the `right_key` of another span has its table of R too.
    """
    count, size, rank = left.shape
    num_right, _, columns = right.shape
    tables, rows = source.tables, (count // num_right) * size
    lefts = tuple(
        tables.matrix(
            f"{span.name}_left_{index}" if num_right > 1 else f"{span.name}_left",
            part.flatten(0, 1),
            f"L, {rows} x {rank}",
            stored=stored,
        )
        for index, part in enumerate(torch.chunk(left, num_right))
    )
    rights = tables.once(
        span if right_key is None else right_key,
        lambda: tables.matrix(
            f"{span.name}_right",
            right.flatten(0, 1),
            f"R, {num_right * rank} x {columns}",
            stored=stored,
        ),
    )
    kept = None if diagonal is None else tables.numbers(f"{span.name}_diagonal", diagonal, "D")
    return ThinTables(rights, lefts, kept, size, columns, rank, count)


def thin_product(
    source: Source, thin: ThinTables, middle: Callable[[str], str] | None = None
) -> Product:
    """`L_g (R x) + D_g x` for each g; `middle` writes what is done to `R x` in between."""
    rows = thin.count // len(thin.lefts) * thin.size
    project = multiply(source, thin.rights, rows=thin.inner, columns=thin.columns)

    def write(y: str, x: str, t: str) -> str:
        lines = [project(t, x, "")]
        if middle is not None:
            lines.append(middle(t))
        for index, left in enumerate(thin.lefts):
            expand = multiply(source, left, rows=rows, columns=thin.rank)
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
