"""What was printed beside what was measured: for terminals, as CSV, as HTML, and as a document."""

import csv
import html
import io
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import get_args

from rich.table import Table

from search.documents.papers import Claim, Fails, PrintedValue, Reaches, RowEntry, TableDocument
from search.papers import SEARCHED
from search.papers.ranks import ranks_of
from search.papers.verdicts import FEWEST_SEEDS, Verdict, VerdictKind, judge
from search.student import half_width
from service.commands.reproduction.cells import Cell, cells_of
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

_NUMBERS = frozenset(HEADINGS[1:-1])
_OF_FILES = frozenset({"updates", "seconds"})
"""A terminal has no place for them."""
_NOTHING = "–"
_SIGN: Mapping[str, int] = {"minimize": -1, "maximize": 1}
_SIGNS: Mapping[str, tuple[str, str]] = {"minimize": ("<=", ">"), "maximize": (">=", "<")}


@dataclass(frozen=True)
class Result:
    """A row, what was measured of it, and the verdict."""

    row: RowEntry
    cells: Sequence[Cell]
    verdict: Verdict

    @property
    def is_searched(self) -> bool:
        """Whether it is of our own, and printed nowhere."""
        return self.row.system == SEARCHED

    def texts(self) -> tuple[str, ...]:
        """The row as it is shown, in the order of `HEADINGS`."""
        verdict, cells = self.verdict, self.cells
        return (
            self.row.key,
            _printed(self.row.claim),
            _measured(verdict),
            _NOTHING if verdict.difference is None else f"{verdict.difference:+.4g}",
            _parameters(self.row),
            str(verdict.seeds),
            _count(cells[0].updates if cells else self.row.updates),
            _NOTHING if not cells else f"{sum(c.seconds for c in cells) / len(cells):.0f}",
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
        found.append(Result(row, own, judge(judged, [cell.measured for cell in own])))
    return found


def as_table(results: Sequence[Result], *, title: str) -> Table:
    """The results for a terminal."""
    table = empty_table(title)
    wide = [heading for heading in HEADINGS if heading not in _OF_FILES]
    for heading in wide:
        table.add_column(
            heading,
            justify="right" if heading in _NUMBERS else "left",
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
        "</body></html>\n"
    )


def as_document(tables: Sequence[TableDocument], cells: Sequence[Cell]) -> str:
    """Every row of every table in Markdown, those that were never trained too."""
    found = [(table, results_of(table, table.entries, cells)) for table in tables]
    parts = [*_opening(cells), *_summary(found)]
    for table, results in found:
        parts += _section(table, results)
    return "\n".join(parts)


def _opening(cells: Sequence[Cell]) -> Iterator[str]:
    yield "# What the papers print, and what is measured here"
    yield ""
    yield (
        "Written by `reflectory reproduce --document deploy/REPRODUCTION.md` from the files of "
        "`deploy/reproduction/` alone. Each row is trained with several seeds, which also move "
        "what is set aside for validation; validation chooses the epoch, the test data are looked "
        "at once. `measured` is the mean with half its 95 % interval (Student's t)."
    )
    yield ""
    yield (
        "A value counts as **reproduced** where the mean is no further below the printed one than "
        "that half, or than the standard error of the printed share, whichever is more (losses: "
        "above), as **better** beyond it on the other side. Claims are that a system reaches a "
        "value within so many updates, or fails to. Below three seeds it is **not yet** known, nor "
        "below five where the interval alone makes up for a mean that falls short; what **cannot "
        "be** reproduced says why."
    )
    if cells:
        yield ""
        machines, commits = (
            _each(cell.machine for cell in cells),
            _each(cell.commit for cell in cells),
        )
        versions = _each(cell.version for cell in cells)
        yield f"Machines: {machines}. Commits: {commits}. Versions: {versions}."
    yield ""


def _summary(found: Iterable[tuple[TableDocument, Sequence[Result]]]) -> Iterator[str]:
    kinds = get_args(VerdictKind)
    yield f"| table | rows | {' | '.join(kinds)} |"
    yield "| --- |" + " ---: |" * (1 + len(kinds))
    for table, results in found:
        verdicts = [result.verdict.kind for result in results if not result.is_searched]
        counts = " | ".join(str(verdicts.count(kind)) for kind in kinds)
        yield f"| {table.title} | {len(verdicts)} | {counts} |"
    yield ""


def _each(texts: Iterable[str]) -> str:
    return ", ".join(sorted(set(texts)))


def _section(table: TableDocument, results: Sequence[Result]) -> Iterator[str]:
    yield f"## {table.title} (`{table.name}`)"
    yield ""
    yield table.about
    yield ""
    printed = [result for result in results if not result.is_searched]
    yield from _table(printed)
    yield from _ranking(printed)
    yield from _searched([result for result in results if result.is_searched])
    remarks = dict[str, list[str]]()
    for result in printed:
        row, failed = result.row, [cell for cell in result.cells if cell.value is None]
        said = (row.erratum, row.deviation, row.unreachable)
        for sentence in (*said, *(f"Seed {c.seed}: {c.reason}" for c in failed)):
            if sentence is not None:
                remarks.setdefault(sentence, []).append(row.key)
    for sentence, keys in remarks.items():
        whole = len(keys) == len(printed)
        yield f"- {'All rows' if whole else ', '.join(keys)}: {sentence}"
    if remarks:
        yield ""


def _table(results: Sequence[Result]) -> Iterator[str]:
    yield f"| {' | '.join(HEADINGS)} |"
    yield "|" + "|".join(" ---: " if heading in _NUMBERS else " --- " for heading in HEADINGS) + "|"
    for result in results:
        yield f"| {' | '.join(result.texts())} |"
    yield ""


def _searched(results: Sequence[Result]) -> Iterator[str]:
    """What a search finds at the papers' sizes, with how often it is the better one."""
    if not results:
        return
    yield "### Searched"
    yield ""
    yield (
        "Rows of our own: the best, by validation, of a study with the default architectures and "
        "parametrizations within the parameters of the largest system of the table, and no more "
        "updates for each trial. `printed` is the best printed value for the same task; "
        "parameters are at most so many."
    )
    yield ""
    yield from _table(results)
    gaps = [
        _SIGN[result.row.claim.direction] * result.verdict.difference
        for result in results
        if result.row.claim is not None
        and result.verdict.difference is not None
        and result.row.unreachable is None
    ]
    if len(gaps) > 1:
        half, better = half_width(gaps), sum(gap > 0 for gap in gaps)
        yield (
            f"Better than the best printed value on {better}, worse on "
            f"{sum(gap < 0 for gap in gaps)} of {len(gaps)} tasks; the mean difference is "
            f"{sum(gaps) / len(gaps):+.3g} ± {half:.2g} (better is positive)."
        )
        yield ""


def _ranking(results: Sequence[Result]) -> Iterator[str]:
    """The systems of rows `data set/system` by their ranks, where each has all seeds."""
    values = dict[str, dict[str, float]]()
    every = {result.row.key.partition("/")[2] for result in results} - {""}
    for result in results:
        data_set, _, system = result.row.key.partition("/")
        value = _ranked_value(result)
        if system and value is not None:
            values.setdefault(data_set, {})[system] = value
    whole = {name: found for name, found in values.items() if found.keys() == every}
    ranks = ranks_of(whole)
    if ranks is None:
        return
    left_out = len({result.row.key.partition("/")[0] for result in results}) - len(whole)
    yield (
        f"Ranks over {len(whole)} data sets, {left_out} left out, for a system has too few seeds "
        "there or nothing is printed to compare. Ties share a rank; what failed ranks last. "
        f"Friedman's test: p = {ranks.friedman_p:.2g}."
        + (
            f" Mean ranks that differ by less than {ranks.critical_difference:.2f} are not told "
            "apart (Nemenyi, 5 %)."
            if ranks.critical_difference is not None
            else ""
        )
    )
    yield ""
    yield "| system | mean rank |"
    yield "| --- | ---: |"
    for system, rank in sorted(ranks.mean_ranks.items(), key=lambda item: item[1]):
        yield f"| {system} | {rank:.2f} |"
    yield ""
    yield "| pair | wins | ties | losses | p (Wilcoxon, Holm) |"
    yield "| --- | ---: | ---: | ---: | ---: |"
    for pair in ranks.pairs:
        yield (
            f"| {pair.first}, {pair.second} | {pair.wins} | {pair.ties} | {pair.losses} | "
            f"{pair.p:.2g} |"
        )
    yield ""


def _ranked_value(result: Result) -> float | None:
    """The mean, higher is better; None where too little is known."""
    claim, verdict = result.row.claim, result.verdict
    if claim is None or len(result.cells) < FEWEST_SEEDS:
        return None
    if verdict.mean is None or any(cell.value is None for cell in result.cells):
        return -math.inf
    return verdict.mean if claim.direction == "maximize" else -verdict.mean


def _printed(claim: Claim | None) -> str:
    return _NOTHING if claim is None else _FORMS[type(claim)](claim)


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


def _measured(verdict: Verdict) -> str:
    if verdict.mean is None:
        return _NOTHING
    if verdict.half_width is None:
        return f"{verdict.mean:.4g}"
    return f"{verdict.mean:.4g} ± {verdict.half_width:.2g}"


def _parameters(row: RowEntry) -> str:
    """The true number, behind the printed one where that is another."""
    printed = row.printed_parameters
    if printed is None or printed == row.parameters:
        return _count(row.parameters)
    return f"{_count(printed)} / {_count(row.parameters)}"


def _count(value: int | str) -> str:
    return f"{value:,}" if isinstance(value, int) else value
