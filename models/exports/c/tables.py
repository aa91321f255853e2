"""The constant tables of a C file, and the ways in which matrices are kept in them."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, TypeAlias, cast

import torch
from torch import Tensor

from models.errors import ExportError
from models.exports.c.text import number
from models.math.householder import row_lengths, rows_of_length_root_two

GROUP, BLOCK = 4, 8
"""Columns and rows of a matrix that stand together."""
LARGEST_TABLES = (1 << 31) - 1
"""Bytes; places in tables are counted by `int`."""
_TO_A_LINE = 8


@dataclass(frozen=True)
class Rounded:
    """Matrices as whole numbers with a scale for each row: `W = scale * whole`."""

    bits: Literal[8, 4]
    whole: Tensor
    """[..., rows, columns], from -127 to 127, or from -7 to 7"""
    scale: Tensor
    """[..., rows]"""


Rounding: TypeAlias = Callable[[Tensor], Rounded]
"""Gives the whole numbers of stored matrices `[..., rows, columns]`; of rounded ones their own."""


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
ROUNDED: Mapping[Literal[8, 4], Encoding] = {8: Bytes(), 4: Halves()}


@dataclass(frozen=True)
class Vectors:
    """Vectors in a table, each scaled by a number of its own where they are rounded."""

    name: str
    encoding: Encoding
    scale: str | None
    """The table of the scales."""


class Tables:
    """Declarations of constant tables, with what they take."""

    def __init__(self, rounding: Rounding | None = None) -> None:
        """With a rounding, matrices that are parameters are kept as whole numbers."""
        self.bytes = 0
        self._rounding = rounding
        self._tables: list[tuple[str, str, str, Tensor]] = []
        self._kept: dict[Hashable, Vectors] = {}

    def numbers(self, name: str, value: Tensor, about: str = "") -> str:
        """A table of single precision; its name is returned."""
        return self._add(name, FLOATS, value.detach().flatten(), about)

    def integers(self, name: str, values: Sequence[int], about: str = "") -> str:
        """A table of places, of 16 bits where these suffice."""
        wide = max(values, default=0) >= 1 << 16
        self._declare(name, "uint32_t" if wide else "uint16_t", torch.tensor(values), about)
        self._grow((4 if wide else 2) * len(values))
        return name

    def matrix(self, name: str, weight: Tensor, about: str, *, stored: bool) -> Vectors:
        """A matrix `[rows, columns]` as products read it, with a scale for each row.

        `stored`: it is a parameter, so that it has whole numbers where there is a rounding.
        """
        weight = weight.detach()
        if self._rounding is None or not stored:
            return Vectors(self._add(name, FLOATS, FLOATS.matrix(weight), about), FLOATS, None)
        rounded = self._rounding(weight)
        content = ROUNDED[rounded.bits].matrix(rounded.whole)
        return self._rounded(name, rounded, content, rounded.scale, about)

    def vectors(self, name: str, rows: Tensor, about: str, *, starts: Sequence[int]) -> Vectors:
        """Rows that are parameters, each from a start on, with a scale for each."""
        rows = rows.detach()
        if self._rounding is None:
            cut = [row[start:] for row, start in zip(rows, starts, strict=True)]
            return Vectors(self._add(name, FLOATS, FLOATS.entries(cut), about), FLOATS, None)
        rounded = self._rounding(rows)
        content = _cut(rounded, starts)
        return self._rounded(name, rounded, content, rounded.scale, about)

    def reflectors(self, name: str, rows: Tensor, about: str, *, starts: Sequence[int]) -> Vectors:
        """Rows as in `vectors`, brought to length sqrt(2): of whole numbers exactly, by the scale.

        A row of zeros stays one.
        """
        rows = rows.detach()
        if self._rounding is None:
            return self.vectors(name, rows_of_length_root_two(rows), about, starts=starts)
        rounded = self._rounding(rows)
        content = _cut(rounded, starts)
        scale = 2**0.5 / row_lengths(rounded.whole.double()).squeeze(-1)
        return self._rounded(name, rounded, content, scale, about)

    def once(self, key: Hashable, make: Callable[[], Vectors]) -> Vectors:
        """The table that was made for a key before, or a new one."""
        if key not in self._kept:
            self._kept[key] = make()
        return self._kept[key]

    def written(self) -> str:
        """The declarations, in the order in which the tables were made."""
        return "\n".join(_declaration(*table) for table in self._tables)

    def _rounded(
        self, name: str, rounded: Rounded, content: Tensor, scale: Tensor, about: str
    ) -> Vectors:
        encoding = ROUNDED[rounded.bits]
        self._add(name, encoding, content, about)
        return Vectors(name, encoding, self.numbers(f"{name}_scale", scale))

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


def _cut(rounded: Rounded, starts: Sequence[int]) -> Tensor:
    """The whole numbers of each row from its start on, as they stand in a table."""
    rows = [row[start:] for row, start in zip(rounded.whole, starts, strict=True)]
    return ROUNDED[rounded.bits].entries(rows)


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
