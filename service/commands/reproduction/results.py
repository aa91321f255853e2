"""What was printed beside what was measured: for terminals, as CSV and as HTML."""

import csv
import html
import io
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from rich.console import Group
from rich.table import Table

from search.documents.papers import (
    Claim,
    Fails,
    PrintedValue,
    Reaches,
    RowEntry,
    TableDocument,
    Verdict,
)
from search.documents.readable import NONE, mean
from search.papers import SEARCHED
from search.papers.cells import Cell, Curve, cells_of
from search.papers.verdicts import judge
from service.commands.reproduction.curves import (
    BAR_NAMES,
    bars,
    curve_texts,
    curves_as_csv,
    mean_curve,
)
from service.commands.shown.tables import empty_table

HEADINGS: tuple[str, ...] = (
    "row",
    "printed",
    "measured",
    "difference",
    "parameters",
    "seeds",
    "updates",
    "seconds",
    "verdict",
)
"""Of every form of the results."""

NUMERIC = frozenset(HEADINGS[1:-1])
"""Headings of numbers."""
_OF_FILES = frozenset({"updates", "seconds"})
"""A terminal has no place for them."""
_SIGNS: Mapping[str, tuple[str, str]] = {"minimize": ("<=", ">"), "maximize": (">=", "<")}


@dataclass(frozen=True)
class Result:
    """A row, what was measured of it, and the verdict."""

    row: RowEntry
    cells: Sequence[Cell]
    """Trainings that ended."""
    unfinished: Sequence[Cell]
    """Those that have not."""
    verdict: Verdict

    @property
    def is_searched(self) -> bool:
        """Whether it is of our own, and printed nowhere."""
        return self.row.system == SEARCHED

    @property
    def curve(self) -> Curve:
        """The means over seeds; empty where none has one.

        Of trainings that ended, or of others where there are none.
        """
        return mean_curve(cell.curve for cell in self.cells or self.unfinished if cell.curve)

    @property
    def networks(self) -> str:
        """What a search chose, by seed, and of how many whole trainings."""
        return ", ".join(map(_network, self.cells)) if self.cells else NONE

    @property
    def _parameters(self) -> str:
        """The true number, behind the printed one where that is another.

        Of a search: what it found, and the most that it may find.
        """
        printed, true = self.row.printed_parameters, self.row.parameters
        if self.is_searched and self.cells:
            found = [cell.parameters for cell in self.cells]
            ends = sorted({min(found), max(found)})
            return f"{' to '.join(map(_count, ends))} of {true:,}"
        if printed is None or printed == true:
            return _count(true)
        return f"{_count(printed)} / {true:,}"

    def texts(self) -> tuple[str, ...]:
        """The row as it is shown, in the order of `HEADINGS`."""
        verdict = self.verdict
        cells = [cell for cell in self.cells if cell.value is not None]
        return (
            self.row.key,
            _printed(self.row.claim),
            mean(verdict.mean, verdict.half_width),
            NONE if verdict.difference is None else f"{verdict.difference:+.4g}",
            self._parameters,
            str(verdict.seeds),
            _count(cells[0].updates if cells else self.row.updates),
            NONE if not cells else f"{sum(c.seconds for c in cells) / len(cells):.0f}",
            verdict.kind,
        )


def results_of(
    table: TableDocument,
    rows: Iterable[RowEntry],
    cells: Iterable[Cell],
    *,
    refused: Mapping[str, str] | None = None,
) -> Sequence[Result]:
    """The verdicts on some rows of a table.

    Args:
        table: the table.
        rows: of its rows.
        cells: all that are known, also of other tables.
        refused: rows that a server does not take, by key, and why.
    """
    known = list(cells)
    found: list[Result] = []
    for row in rows:
        why = (refused or {}).get(row.key)
        judged = row if why is None else row.model_copy(update={"unreachable": why})
        own = cells_of(row, table.name, known)
        ended = [cell for cell in own if not cell.unfinished]
        unfinished = [cell for cell in own if cell.unfinished]
        verdict = judge(judged, [cell.measured for cell in own])
        found.append(Result(row, ended, unfinished, verdict))
    return found


def as_text(results: Sequence[Result], *, title: str) -> Group:
    """The results for a terminal, and how they were trained where that is kept."""
    return Group(_as_table(results, title=title), *_as_bars(results))


def _as_bars(results: Sequence[Result]) -> Iterator[Table]:
    """Curves beside what the paper says of them, the means over seeds."""
    curves = {result.row.key: (result, result.curve) for result in results if result.curve}
    if not curves:
        return
    table = empty_table("Over updates: first value, bars, last value (means over seeds)")
    for heading in ("row", "claim", *BAR_NAMES):
        table.add_column(heading, overflow="fold")
    for key, (result, curve) in curves.items():
        table.add_row(key, _printed(result.row.claim), *(bars(curve, name) for name in BAR_NAMES))
    yield table


def _as_table(results: Sequence[Result], *, title: str) -> Table:
    table = empty_table(title)
    wide = [heading for heading in HEADINGS if heading not in _OF_FILES]
    for heading in wide:
        table.add_column(
            heading,
            justify="right" if heading in NUMERIC else "left",
            overflow="fold",
        )
    for result in results:
        texts = dict(zip(HEADINGS, result.texts(), strict=True))
        table.add_row(*(texts[heading] for heading in wide))
    return table


def as_csv(results: Sequence[Result]) -> str:
    """The results as CSV, with the reasons of verdicts."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*HEADINGS, "why"])
    for result in results:
        writer.writerow([*result.texts(), result.verdict.why or ""])
    return text.getvalue()


def as_curves(results: Sequence[Result]) -> str:
    """The curves of all seeds as CSV, of trainings that have not ended as well."""
    return curves_as_csv(
        {
            result.row.key: {
                cell.seed: cell.curve for cell in (*result.cells, *result.unfinished) if cell.curve
            }
            for result in results
        }
    )


def as_html(results: Sequence[Result], *, title: str) -> str:
    """The results as a page that needs nothing else."""
    head = "".join(f"<th>{html.escape(heading)}</th>" for heading in (*HEADINGS, "why"))
    rows = "\n".join(
        "<tr>"
        + "".join(f"<td>{html.escape(t)}</td>" for t in (*one.texts(), one.verdict.why or ""))
        + "</tr>"
        for one in results
    )
    escaped = html.escape(title)
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        f"<title>{escaped}</title></head><body>\n<h1>{escaped}</h1>\n"
        f"<table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{rows}\n</tbody>\n</table>\n"
        f"{_curves_as_html(results)}</body></html>\n"
    )


def _curves_as_html(results: Sequence[Result]) -> str:
    heading, *lines = curve_texts({one.row.key: one.curve for one in results if one.curve})
    if not lines:
        return ""
    head = "".join(f"<th>{html.escape(text)}</th>" for text in heading)
    rows = "\n".join(
        "<tr>" + "".join(f"<td>{html.escape(text)}</td>" for text in line) + "</tr>"
        for line in lines
    )
    return (
        "<h2>Over updates, means over seeds</h2>\n"
        f"<table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{rows}\n</tbody>\n</table>\n"
    )


def _printed(claim: Claim | None) -> str:
    return NONE if claim is None else _FORMS[type(claim)](claim)


def _value(claim: Claim) -> str:
    printed = claim.printed if isinstance(claim, PrintedValue) else None
    return f"{claim.value:.4g}" if printed is None else f"{claim.value:.4g} [{printed}]"


def _reaching(claim: Claim) -> str:
    return f"{_SIGNS[claim.direction][0]} {claim.value:.4g}"


def _failing(claim: Claim) -> str:
    return f"{_SIGNS[claim.direction][1]} {claim.value:.4g}"


_FORMS: Mapping[type, Callable[[Claim], str]] = {
    PrintedValue: _value,
    Reaches: _reaching,
    Fails: _failing,
}


def _network(cell: Cell) -> str:
    found = cell.network or NONE
    return found if cell.trainings is None else f"{found}, of {cell.trainings:g} trainings"


def _count(value: int | str) -> str:
    return f"{value:,}" if isinstance(value, int) else value
