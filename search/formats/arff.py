"""The ARFF format, as far as multi-label sets use it: numbers, in dense or in sparse rows."""

import re
from dataclasses import dataclass
from pathlib import Path

from search.errors import DataError
from search.formats.files import text
from search.formats.numbers import decimal, shown, whole
from search.formats.sparse_rows import SparseRows, ascending

_NUMERIC = ("numeric", "real", "integer")
_ATTRIBUTE = re.compile(
    r"""@attribute\s+(?:'(?P<single>(?:[^'\\]|\\.)*)'|"(?P<double>(?:[^"\\]|\\.)*)"|"""
    r"""(?P<bare>[^\s'"{]\S*))\s*(?P<type>.*)""",
    re.IGNORECASE,
)
_ENTRY = re.compile(r"(\S+)\s+(\S+)")


@dataclass(frozen=True)
class Attribute:
    """A column: its name, and the numbers it may hold where the file lists them."""

    name: str
    allowed: tuple[float, ...] | None

    @property
    def implied(self) -> float:
        """What a sparse row leaves out: the first number of the list, or 0."""
        return self.allowed[0] if self.allowed else 0.0


@dataclass(frozen=True)
class Table:
    """What a file holds; `rows` has a column per attribute, in the header's order."""

    attributes: tuple[Attribute, ...]
    rows: SparseRows


def read(path: Path) -> Table:
    """Read a file, plain or gzipped.

    Rows are dense (`1,0,0.5`) or sparse (`{0 1, 2 0.5}`: column from 0 and value; the others are 0
    or, where the header lists an attribute's values, the first of them). Attributes are numeric, or
    nominal with numbers for values, such as `{0,1}`. Source: Attribute-Relation File Format, Weka
    manual, with its sparse rows.

    Raises:
        DataError: The file is missing, damaged, or holds what is not a number (texts, dates,
            missing values); the message names the file and the line.
    """
    attributes: list[Attribute] = []
    names: set[str] = set()
    rows: list[list[tuple[int, float]]] = []
    in_data = False
    implied: dict[int, float] = {}
    for number, raw in enumerate(text(path).split("\n"), start=1):
        line = raw.strip()
        if not line or line.startswith("%"):
            continue
        try:
            if in_data:
                rows.append(_row(line, attributes, implied))
            elif line.lower() == "@data":
                in_data = True
                implied = {i: item.implied for i, item in enumerate(attributes) if item.implied}
            elif not re.match(r"@relation\b", line, re.IGNORECASE):
                attributes.append(_attribute(line, names))
        except ValueError as error:
            raise DataError(f"{path}, line {number}: {error}") from error
    if not attributes or not rows:
        first = "line @data" if not in_data else "row" if attributes else "attribute"
        raise DataError(f"{path} holds no {first}")
    return Table(tuple(attributes), SparseRows.of(rows, width=len(attributes)))


def _attribute(line: str, names: set[str]) -> Attribute:
    match = _ATTRIBUTE.fullmatch(line)
    if match is None:
        raise ValueError(
            f"expected are @relation, @attribute NAME TYPE or @data, not {shown(line)}"
        )
    quoted = match["single"] if match["single"] is not None else match["double"]
    name = match["bare"] if quoted is None else re.sub(r"\\(.)", r"\1", quoted)
    if name in names:
        raise ValueError(f"the attribute {shown(name)} occurs twice")
    names.add(name)
    return Attribute(name, _allowed(name, match["type"].strip()))


def _allowed(name: str, kind: str) -> tuple[float, ...] | None:
    if kind.lower() in _NUMERIC:
        return None
    if kind.startswith("{") and kind.endswith("}"):
        return tuple(decimal(field.strip().strip("'\"")) for field in kind[1:-1].split(","))
    raise ValueError(
        f"the attribute {shown(name)} is of type {shown(kind)}; "
        f"allowed are {', '.join(_NUMERIC)} and numbers in braces"
    )


def _row(
    line: str, attributes: list[Attribute], implied: dict[int, float]
) -> list[tuple[int, float]]:
    if line.startswith("{"):
        given = ascending(_sparse_row(line, attributes), what="column")
        numbers = sorted({**implied, **dict(given)}.items()) if implied else given
        return [(column, value) for column, value in numbers if value != 0]
    fields = line.split(",")
    if len(fields) != len(attributes):
        raise ValueError(
            f"{len(fields)} value{'s' * (len(fields) != 1)} for {len(attributes)} attributes"
        )
    numbers = (
        (column, _value(field.strip(), attributes[column])) for column, field in enumerate(fields)
    )
    return [(column, value) for column, value in numbers if value != 0]


def _sparse_row(line: str, attributes: list[Attribute]) -> list[tuple[int, float]]:
    if not line.endswith("}"):
        raise ValueError("the sparse row does not end with }")
    inner = line[1:-1].strip()
    row: list[tuple[int, float]] = []
    for entry in inner.split(",") if inner else ():
        match = _ENTRY.fullmatch(entry.strip())
        if match is None:
            raise ValueError(f"expected is a column and its value, not {shown(entry)}")
        column = whole(match[1], high=len(attributes) - 1)
        row.append((column, _value(match[2], attributes[column])))
    return row


def _value(field: str, attribute: Attribute) -> float:
    number = decimal(field.strip("'\""))
    if attribute.allowed is not None and number not in attribute.allowed:
        allowed = ", ".join(f"{value:g}" for value in attribute.allowed)
        raise ValueError(
            f"the attribute {shown(attribute.name)} is {shown(field)}; allowed are {allowed}"
        )
    return number
