"""Lists: tables that fit into 80 columns, and all there is to know as JSON, CSV or YAML."""

import csv
import io
import json
import shutil
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from difflib import get_close_matches
from enum import StrEnum
from itertools import islice
from typing import Annotated, Any, Generic, TypeVar, cast

import typer

from search.documents.readable import NONE
from service.commands.connection import print_json

_M = TypeVar("_M")

_LEAST_NAME = 24
"""Letters of a name that are shown however narrow the terminal is."""
_GAP = 2
_AGES = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))


class Form(StrEnum):
    """How a list is printed."""

    TABLE = "table"
    JSON = "json"
    CSV = "csv"
    YAML = "yaml"


WideOption = Annotated[bool, typer.Option("--wide", "-w", help="Show whole ids and all columns.")]
FormOption = Annotated[
    Form | None,
    typer.Option("--output", "-o", help="How it is printed; csv has the columns of --wide."),
]
SortOption = Annotated[
    str | None,
    typer.Option(metavar="COLUMN", help="Sort by a column; -COLUMN: the largest first."),
]
LimitOption = Annotated[int | None, typer.Option(min=1, help="At most so many.")]


@dataclass(frozen=True)
class Wishes:
    """What the command line says of a list."""

    wide: bool = False
    form: Form | None = None
    sort: str | None = None
    limit: int | None = None


@dataclass(frozen=True)
class Column(Generic[_M]):
    """A column of a list."""

    name: str
    value: Callable[[_M], Any]
    """For programs, and what is sorted by."""
    shown: Callable[[_M], str] | None = None
    """For people, where it differs."""
    number: bool = False
    is_cut: bool = False
    """Whether it gives way where the terminal is narrow."""
    narrow: bool = True
    """Whether it is in the usual table."""
    wide: bool = True
    """Whether it is in that of `--wide`, and in CSV."""

    def cell(self, thing: _M) -> str:
        """What a table shows of a thing, on one line."""
        text = str(self.value(thing)) if self.shown is None else self.shown(thing)
        return "".join(letter if letter.isprintable() else "?" for letter in text)


def show_list(
    things: Iterable[_M],
    columns: Sequence[Column[_M]],
    wishes: Wishes,
    *,
    as_json: bool,
    nothing: str,
) -> None:
    """Print a list as it is asked for.

    Args:
        things: documents of the client, or the JSON of such.
        columns: of a table or CSV.
        wishes: what the command line says of the list.
        as_json: whether JSON is asked for by its own option.
        nothing: what is printed where there is nothing.

    Raises:
        typer.BadParameter: there is no such column, or two forms are asked for.
    """
    if as_json and wishes.form not in (None, Form.JSON):
        raise typer.BadParameter(f"--json and --output {wishes.form} exclude each other")
    if wishes.sort is not None:
        things = _sorted(things, columns, wishes.sort)
    found = list(islice(things, wishes.limit))
    form = Form.JSON if as_json else wishes.form or Form.TABLE
    if form == Form.TABLE and not found:
        typer.echo(nothing)
        return
    _FORMS[form](found, columns, wishes)


def age(moment: datetime) -> str:
    """How long ago something was: `3 h`."""
    seconds = max(0, int((datetime.now(UTC) - moment).total_seconds()))
    size, unit = next(((size, unit) for size, unit in _AGES if seconds >= size), _AGES[-1])
    return f"{seconds // size} {unit}"


def moment(at: datetime) -> str:
    """A point in time, in UTC."""
    return f"{at:%Y-%m-%d %H:%M}"


def count(number: int | None) -> str:
    """A number of things."""
    return NONE if number is None else f"{number:,}"


def as_yaml(document: Any) -> str:
    """A JSON document as YAML, its texts in quotes as JSON has them."""
    return "".join(f"{line}\n" for line in _yaml_lines(document))


def _sorted(things: Iterable[_M], columns: Sequence[Column[_M]], text: str) -> list[_M]:
    known: Mapping[str, Column[_M]] = {column.name: column for column in columns}
    column = known.get(text.removeprefix("-"))
    if column is None:
        near = get_close_matches(text.removeprefix("-"), known, n=1)
        meant = f"; did you mean {near[0]!r}?" if near else ""
        raise typer.BadParameter(
            f"{text!r} is no column; allowed are {', '.join(known)}{meant}", param_hint="--sort"
        )

    def place(thing: _M) -> tuple[bool, Any]:
        value = column.value(thing)
        return value is None, 0 if value is None else value

    return sorted(things, key=place, reverse=text.startswith("-"))


def _print_table(found: Sequence[_M], columns: Sequence[Column[_M]], wishes: Wishes) -> None:
    shown = [column for column in columns if (column.wide if wishes.wide else column.narrow)]
    cells = [[column.name for column in shown]]
    cells += [[column.cell(thing) for column in shown] for thing in found]
    widths = [max(map(_width, texts)) for texts in zip(*cells, strict=True)]
    if not wishes.wide:
        _fit(widths, shown, shutil.get_terminal_size().columns)
    lines = [
        "  ".join(
            _padded(text, width, right=column.number)
            for text, width, column in zip(row, widths, shown, strict=True)
        ).rstrip()
        for row in cells
    ]
    lines.insert(1, "─" * (sum(widths) + _GAP * (len(widths) - 1)))
    typer.echo("\n".join(lines))


def _fit(widths: list[int], columns: Sequence[Column[_M]], room: int) -> None:
    """Cut what may be cut until a line fits, or until no more of it can go."""
    over = sum(widths) + _GAP * (len(widths) - 1) - room
    for place, column in enumerate(columns):
        if column.is_cut and over > 0:
            cut = min(over, max(0, widths[place] - _LEAST_NAME))
            widths[place] -= cut
            over -= cut


def _print_csv(found: Sequence[_M], columns: Sequence[Column[_M]], _wishes: Wishes) -> None:
    shown = [column for column in columns if column.wide]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(column.name for column in shown)
    writer.writerows([_plain(column.value(thing)) for column in shown] for thing in found)
    typer.echo(text.getvalue(), nl=False)


def _print_json(found: Sequence[_M], _columns: Sequence[Column[_M]], _wishes: Wishes) -> None:
    print_json([*map(_document, found)])


def _print_yaml(found: Sequence[_M], _columns: Sequence[Column[_M]], _wishes: Wishes) -> None:
    typer.echo(as_yaml([*map(_document, found)]), nl=False)


_FORMS: Mapping[Form, Callable[[Sequence[Any], Sequence[Column[Any]], Wishes], None]] = {
    Form.TABLE: _print_table,
    Form.JSON: _print_json,
    Form.CSV: _print_csv,
    Form.YAML: _print_yaml,
}


def _document(thing: Any) -> Any:
    return thing.model_dump(mode="json") if hasattr(thing, "model_dump") else thing


def _plain(value: Any) -> Any:
    return value.isoformat() if isinstance(value, datetime) else value


def _padded(text: str, width: int, *, right: bool) -> str:
    missing = width - _width(text)
    if missing < 0:
        kept = ""
        for letter in text:
            if _width(kept) + _width(letter) > width - 1:
                break
            kept += letter
        text, missing = f"{kept}…", width - 1 - _width(kept)
    return " " * missing + text if right else text + " " * missing


def _width(text: str) -> int:
    """Cells of a terminal that a text takes."""
    return sum(
        0 if unicodedata.combining(letter) else 1 + (unicodedata.east_asian_width(letter) in "WF")
        for letter in text
    )


def _yaml_lines(value: Any, indent: str = "") -> Iterator[str]:
    """The lines of a value that stands on lines of its own."""
    if isinstance(value, dict) and value:
        for name, part in cast("dict[str, Any]", value).items():
            yield from _yaml_entry(f"{indent}{_quoted(name)}:", part, f"{indent}  ")
    elif isinstance(value, list) and value:
        for part in cast("list[Any]", value):
            yield from _yaml_entry(f"{indent}-", part, f"{indent}  ")
    else:
        yield f"{indent}{_quoted(value)}"


def _yaml_entry(head: str, value: Any, indent: str) -> Iterator[str]:
    if isinstance(value, dict | list) and value:
        yield head
        yield from _yaml_lines(value, indent)
    else:
        yield f"{head} {_quoted(value)}"


def _quoted(value: Any) -> str:
    """A value without parts, as JSON and YAML both read it."""
    text = json.dumps(value, ensure_ascii=False)
    # YAML wants numbers with an exponent to have a point, and shows what cannot be seen by number.
    if isinstance(value, float) and "e" in text and "." not in text:
        text = text.replace("e", ".0e")
    return "".join(one if one.isprintable() else f"\\U{ord(one):08x}" for one in text)
