"""The constant tables of a C file, and the ways in which matrices are kept in them."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, cast

import torch
from torch import Tensor

from models.errors import ExportError
from models.exports.c.parameters import Stored, brain_float_digits
from models.exports.c.text import number
from models.math.householder import row_lengths, rows_of_length_root_two
from models.quantization import Bits

GROUP, BLOCK = 4, 8
"""Columns and rows of a matrix that stand together."""
LARGEST_TABLES = (1 << 31) - 1
"""Bytes; places in tables are counted by `int`."""
_TO_A_LINE = 8


class Encoding(ABC):
    """How the numbers of vectors stand in a table, one vector after the other."""

    suffix: ClassVar[str]
    """What the names of C functions end in that read it."""
    c_type: ClassVar[str]

    @abstractmethod
    def places(self, length: int) -> int:
        """Places of a table that a vector of so many numbers takes."""

    @abstractmethod
    def entries(self, vectors: Iterable[Tensor]) -> Tensor:
        """The content of the table."""

    @abstractmethod
    def matrix(self, matrix: Tensor) -> Tensor:
        """The content of the table of a matrix `[rows, columns]`, as products read it."""

    @abstractmethod
    def size(self) -> int:
        """Bytes of a place."""


class Floats(Encoding):
    """Numbers of single precision."""

    suffix: ClassVar[str] = ""
    c_type: ClassVar[str] = "float"

    def places(self, length: int) -> int:
        """One for each."""
        return length

    def entries(self, vectors: Iterable[Tensor]) -> Tensor:
        """The numbers."""
        return torch.cat([vector.flatten() for vector in vectors])

    def matrix(self, matrix: Tensor) -> Tensor:
        """The numbers in groups."""
        return grouped(matrix)

    def size(self) -> int:
        """Four."""
        return 4


class Bytes(Encoding):
    """Whole numbers of 8 bits."""

    suffix: ClassVar[str] = "8"
    c_type: ClassVar[str] = "signed char"

    def places(self, length: int) -> int:
        """One for each."""
        return length

    def entries(self, vectors: Iterable[Tensor]) -> Tensor:
        """The numbers."""
        return torch.cat([vector.flatten() for vector in vectors]).to(torch.int64)

    def matrix(self, matrix: Tensor) -> Tensor:
        """Its columns."""
        return self.entries(matrix.t())

    def size(self) -> int:
        """One."""
        return 1


class Halves(Encoding):
    """Whole numbers of 4 bits, plus 8: a vector's first half low in the bytes, its second high."""

    suffix: ClassVar[str] = "4"
    c_type: ClassVar[str] = "unsigned char"

    def places(self, length: int) -> int:
        """One for two."""
        return (length + 1) // 2

    def entries(self, vectors: Iterable[Tensor]) -> Tensor:
        """The bytes."""
        return torch.cat([self._packed(vector) for vector in vectors])

    def matrix(self, matrix: Tensor) -> Tensor:
        """The bytes of its columns."""
        return self.entries(matrix.t())

    def size(self) -> int:
        """One."""
        return 1

    def _packed(self, vector: Tensor) -> Tensor:
        digits = vector.to(torch.int64) + 8
        half = self.places(len(digits))
        high = torch.nn.functional.pad(digits[half:], (0, 2 * half - len(digits)), value=8)
        return digits[:half] + 16 * high


def grouped(matrix: Tensor) -> Tensor:
    """The numbers of a matrix `[rows, columns]` in the order of `functions/accumulate.c`.

    Groups of four columns, of which each lies in blocks of eight rows, then one of the rows that
    are left, column after column in each; then the columns that fill no group.
    """
    rows, columns = matrix.shape
    body, full = rows - rows % BLOCK, columns - columns % GROUP
    groups = full // GROUP
    blocks = matrix[:body, :full].reshape(body // BLOCK, BLOCK, groups, GROUP)
    rest = matrix[body:, :full].reshape(rows - body, groups, GROUP)
    inside = torch.cat(
        [
            blocks.permute(2, 0, 3, 1).reshape(groups, body * GROUP),
            rest.permute(1, 2, 0).reshape(groups, (rows - body) * GROUP),
        ],
        dim=1,
    )
    return torch.cat((inside.flatten(), matrix[:, full:].t().flatten()))


FLOATS = Floats()
ENCODINGS: Mapping[int | None, Encoding] = {None: FLOATS, 8: Bytes(), 4: Halves()}
"""By the bits of integers; None: numbers of single precision."""


@dataclass(frozen=True)
class Scale:
    """A table of scales."""

    name: str
    brief: bool
    """Whether it holds the upper 16 bits of each: bfloat16"""

    @property
    def suffix(self) -> str:
        """What the names of C functions end in that read it."""
        return "16" if self.brief else ""


@dataclass(frozen=True)
class Vectors:
    """Vectors in a table, each scaled by a number of its own where they are rounded."""

    name: str
    encoding: Encoding
    scale: Scale | None


@dataclass(frozen=True)
class Matrix:
    """A table of one or several matrices that read one vector, one below the other."""

    name: str
    encoding: Encoding
    rows: int
    """Of all"""
    columns: int
    by_row: Scale | None = None
    by_column: Scale | None = None
    parts: int = 1
    """Matrices that stand one behind the other, because each has scales of its own columns"""

    @property
    def places(self) -> int:
        """Places of the table that a column of a part takes."""
        return self.encoding.places(self.rows // self.parts)


class Tables:
    """Declarations of constant tables, with what they take."""

    def __init__(self, bits: Bits | None = None) -> None:
        """With bits, parameters that are rounded are kept as integers."""
        self.bits: Bits | None = bits
        self.bytes = 0
        self._tables: list[tuple[str, str, str, Tensor]] = []
        self._kept: dict[Hashable, Matrix] = {}

    def numbers(self, name: str, value: Tensor, about: str = "") -> str:
        """A table of single precision; its name is returned."""
        return self._add(name, FLOATS, value.detach().flatten(), about)

    def integers(self, name: str, values: Sequence[int], about: str = "") -> str:
        """A table of places, of 16 bits where these suffice."""
        wide = max(values, default=0) >= 1 << 16
        self._declare(name, "uint32_t" if wide else "uint16_t", torch.tensor(values), about)
        self._grow((4 if wide else 2) * len(values))
        return name

    def angles(self, name: str, values: Tensor, bits: int, about: str = "") -> str:
        """A table of places on a circle of `2^bits`, 16 or 8; whole turns are left out."""
        half = 1 << (bits - 1)
        content = (values.flatten().to(torch.int64) + half) % (2 * half) - half
        self._declare(name, "int16_t" if bits > 8 else "signed char", content, about)
        self._grow(bits // 8 * content.numel())
        return name

    def matrix(self, name: str, stored: Stored, about: str) -> Matrix:
        """Matrices `[rows, columns]`, or `[G, rows, columns]`, as products read them."""
        content = stored.numbers.detach()
        rows, columns = content.flatten(0, -2).shape
        encoding = ENCODINGS[stored.bits]
        if stored.by_column is None:
            parts, written = 1, encoding.matrix(content.flatten(0, -2))
        else:
            each = content.view(-1, *content.shape[-2:])
            parts, written = len(each), torch.cat([encoding.matrix(one) for one in each])
        self._add(name, encoding, written, about)
        by_row = self._scale(f"{name}_scale", stored.by_row)
        by_column = self._scale(f"{name}_scale", stored.by_column)
        return Matrix(name, encoding, rows, columns, by_row, by_column, parts)

    def vectors(self, name: str, stored: Stored, about: str) -> Matrix:
        """Vectors `[count, length]` one after the other: the columns of what is returned."""
        columns, rows = stored.numbers.shape
        encoding = ENCODINGS[stored.bits]
        self._add(name, encoding, encoding.entries(stored.numbers.detach()), about)
        by_row = self._scale(f"{name}_scale", stored.by_column)
        by_column = self._scale(f"{name}_scale", stored.by_row)
        return Matrix(name, encoding, rows, columns, by_row, by_column)

    def reflectors(self, name: str, rows: Tensor, about: str, *, starts: Sequence[int]) -> Vectors:
        """Rows that only count by their directions, each from a start on; a row of 0 stays one.

        Numbers are brought to length sqrt(2). Integers z have a scale, `2 / |z|^2`.
        """
        rows = rows.detach()
        encoding = ENCODINGS[self.bits]
        kept = rows_of_length_root_two(rows) if self.bits is None else rows
        cut = [row[start:] for row, start in zip(kept, starts, strict=True)]
        self._add(name, encoding, encoding.entries(cut), about)
        if self.bits is None:
            return Vectors(name, encoding, None)
        lengths = row_lengths(rows.double()).squeeze(-1)
        scale = Scale(self.numbers(f"{name}_scale", 2 / lengths.square()), brief=False)
        return Vectors(name, encoding, scale)

    def once(self, key: Hashable, make: Callable[[], Matrix]) -> Matrix:
        """The table that was made for a key before, or a new one."""
        if key not in self._kept:
            self._kept[key] = make()
        return self._kept[key]

    def written(self) -> str:
        """The declarations, in the order in which the tables were made."""
        return "\n".join(_declaration(*table) for table in self._tables)

    def _scale(self, name: str, scale: Tensor | None) -> Scale | None:
        if scale is None:
            return None
        if scale.dtype != torch.bfloat16:
            return Scale(self.numbers(name, scale), brief=False)
        self._declare(name, "uint16_t", brain_float_digits(scale.flatten()), "")
        self._grow(2 * scale.numel())
        return Scale(name, brief=True)

    def _add(self, name: str, encoding: Encoding, content: Tensor, about: str) -> str:
        if encoding is FLOATS:
            content = content.float()
            if not content.isfinite().all():
                raise ExportError(
                    f"{name} holds {content[~content.isfinite()][0]}; C files hold finite numbers "
                    "of single precision alone"
                )
        self._declare(name, encoding.c_type, content, about)
        self._grow(encoding.size() * content.numel())
        return name

    def _declare(self, name: str, c_type: str, content: Tensor, about: str) -> None:
        self._tables.append((name, c_type, about, content.cpu()))

    def _grow(self, size: int) -> None:
        self.bytes += size
        if self.bytes > LARGEST_TABLES:
            raise ExportError(
                f"the tables take {self.bytes} bytes or more; a C file holds at most "
                f"{LARGEST_TABLES}"
            )


def _declaration(name: str, c_type: str, about: str, content: Tensor) -> str:
    # torch's lists have no types.
    values = cast(list[float], cast(Any, content).tolist())
    written = [number(value) for value in values] if c_type == "float" else list(map(str, values))
    lines = [
        ", ".join(written[start : start + _TO_A_LINE])
        for start in range(0, len(written), _TO_A_LINE)
    ]
    comment = f"\n/* {about} */\n" if about else ""
    body = ",\n    ".join(lines)
    return f"{comment}static const {c_type} {name}[{len(values)}] = {{\n    {body}\n}};"
