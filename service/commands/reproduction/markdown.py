"""The document of all tables, in Markdown: what is printed, what was measured, and how."""

import json
import math
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import mean
from types import MappingProxyType
from typing import get_args

from search.documents.papers import (
    Fails,
    PrintedValue,
    Reaches,
    RowEntry,
    TableDocument,
    VerdictKind,
)
from search.papers import BUDGET_IN_WORDS, SEARCHED, TABLES
from search.papers.cells import Cell, read_cells
from search.papers.ranks import ranks_of
from search.papers.verdicts import FEWEST_SEEDS, SETTLING_SEEDS
from search.student import half_width
from service.commands.reproduction.curves import curve_texts
from service.commands.reproduction.results import HEADINGS, NUMERIC, Result, results_of
from service.rendering.anchors import anchor

SUMMARY = "summary"
"""What findings on all tables go by."""
_SIGN: Mapping[str, int] = {"minimize": -1, "maximize": 1}
_SECONDS_AN_HOUR = 3600


def document_of(folder: Path) -> str:
    """The document of a folder's files: cells of any tables, TABLE.md with findings, summary.md.

    Raises:
        BadResults: one of them is damaged.
    """
    cells = [cell for file in sorted(folder.glob("*.jsonl")) for cell in read_cells(file)]
    files = {name: folder / f"{name}.md" for name in (*TABLES, SUMMARY)}
    findings = {
        name: file.read_text(encoding="utf-8").strip()
        for name, file in files.items()
        if file.is_file()
    }
    tables = [table.document() for table in TABLES.values()]
    return as_document(tables, cells, findings=findings)


def as_document(
    tables: Sequence[TableDocument],
    cells: Sequence[Cell],
    *,
    findings: Mapping[str, str] = MappingProxyType({}),
) -> str:
    """Every row of every table in Markdown, those that were never trained too.

    Args:
        tables: in the order of their sections.
        cells: of all tables.
        findings: Markdown by the names of tables, or `SUMMARY` of all: what was found about what
            does not reproduce.
    """
    found = [(table, results_of(table, table.entries, cells)) for table in tables]
    parts = [*_opening(cells), *_summary(found)]
    if SUMMARY in findings:
        parts += ["## In short", "", findings[SUMMARY], ""]
    for table, results in found:
        parts += _section(table, results, findings.get(table.name))
    return "\n".join(parts)


def _opening(cells: Sequence[Cell]) -> Iterator[str]:
    yield "# What the papers print, and what is measured here"
    yield ""
    yield (
        "Written by `reflectory reproduce --document deploy/docs/benchmarks/reproduction.md "
        "--cells deploy/reproduction` from the files of that folder alone. Each row is trained "
        "with several seeds, which also move what is set aside for validation; validation chooses "
        "the epoch, the test data are looked at once. `measured` is the mean with half its 95 % "
        "interval (Student's t)."
    )
    yield ""
    yield (
        "A value counts as **reproduced** where the mean is no further below the printed one than "
        "that half, or than the standard error of the printed share, whichever is more (losses: "
        "above), as **better** beyond it on the other side. Claims are that a system reaches a "
        "value within so many updates, or fails to; more than half of the seeds decide. One that "
        "breaks off does not reach it; one that reaches it on validation data counts before its "
        "end. Below three seeds it is **not yet** known, nor "
        "below five where the interval alone makes up for a mean that falls short, or where seeds "
        "do not agree whether a claim's value is reached; what **cannot be** reproduced says why."
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


def _summary(found: Sequence[tuple[TableDocument, Sequence[Result]]]) -> Iterator[str]:
    kinds = get_args(VerdictKind)
    yield f"| table | rows | {' | '.join(kinds)} | trainings | device hours |"
    yield "| --- |" + " ---: |" * (3 + len(kinds))
    totals = Counter[str]()
    for table, results in found:
        counts = _counts(results)
        totals += counts
        title = f"{table.title} (`{table.name}`)"
        yield f"| [{table.title}](#{anchor(title)}) {_numbers(counts, kinds)}"
    yield f"| all {_numbers(totals, kinds)}"
    yield ""
    yield (
        "Each table has **searched** rows too, of our own: the best, by validation, of a study "
        "that looks for quality alone among the default architectures and parametrizations, within "
        "the parameters of the largest system for the task, and with no more updates for each "
        f"trial: of {BUDGET_IN_WORDS}. There `printed` is the best printed value for the same "
        "task, or what a system is said to reach; parameters are those of the network found, of at "
        "most so many."
        f"{_over_all_tables(found)}"
    )
    yield ""


def _over_all_tables(found: Iterable[tuple[TableDocument, Sequence[Result]]]) -> str:
    """How often a search finds something better than what the papers have, over all tables."""
    gaps = [gap for _, results in found for gap in _gaps_to_measured(results)]
    if not gaps:
        return ""
    better, worse = _wins(gaps)
    return (
        f" What was found is better than the best system of the papers, as it is here, on {better} "
        f"and worse on {worse} of {len(gaps)} tasks."
    )


def _counts(results: Sequence[Result]) -> Counter[str]:
    """Rows and verdicts of printed systems; trainings that ended, and all hours."""
    printed = [result for result in results if not result.is_searched]
    ended = [cell for result in results for cell in result.cells]
    paused = [cell for result in results for cell in result.unfinished]
    counts = Counter[str](result.verdict.kind for result in printed)
    counts |= {"rows": len(printed), "trainings": len(ended)}
    counts["seconds"] = round(sum(cell.seconds for cell in (*ended, *paused)))
    return counts


def _numbers(counts: Counter[str], kinds: Iterable[str]) -> str:
    columns = ("rows", *kinds, "trainings")
    hours = f"{counts['seconds'] / _SECONDS_AN_HOUR:.1f}"
    return f"| {' | '.join(f'{counts[name]:,}' for name in columns)} | {hours} |"


def _each(texts: Iterable[str]) -> str:
    return ", ".join(sorted(set(texts)))


def _section(table: TableDocument, results: Sequence[Result], finding: str | None) -> Iterator[str]:
    yield f"## {table.title} (`{table.name}`)"
    yield ""
    yield table.about
    yield ""
    printed = [result for result in results if not result.is_searched]
    yield from _table(HEADINGS, [result.texts() for result in printed])
    yield from _left(table, printed)
    if finding is not None:
        yield from ("### What was found", "", finding, "")
    yield from _ranking(printed)
    yield from _curves(
        [result for result in printed if _is_of_a_figure(result.row) or result.unfinished]
    )
    yield from _searched(table, results)
    remarks = dict[str, list[str]]()
    for result in printed:
        row = result.row
        said = (
            row.erratum,
            row.deviation,
            row.unreachable,
            *_about_seeds(result),
            *(_so_far(cell, row) for cell in result.unfinished),
        )
        for sentence in said:
            if sentence is not None:
                remarks.setdefault(sentence, []).append(row.key)
    for sentence, keys in remarks.items():
        whole = len(keys) == len(printed)
        yield f"- {'All rows' if whole else ', '.join(keys)}: {sentence}"
    if remarks:
        yield ""


def _about_seeds(result: Result) -> Iterator[str]:
    """Why seeds failed, and where seeds do not agree how many reach what is claimed."""
    why = result.verdict.why
    if why is not None and result.verdict.kind in ("reproduced", "not reproduced"):
        yield why[0].upper() + why[1:]
        return
    for cell in result.cells:
        if cell.value is None:
            yield f"Seed {cell.seed}: {cell.reason}"


def _so_far(cell: Cell, row: RowEntry) -> str:
    """How far a training came that has not ended."""
    last = f", validation {cell.curve[-1].validation:.4g}" if cell.curve else ""
    return (
        f"Seed {cell.seed} has not ended: {cell.updates:,} of {row.updates:,} updates in "
        f"{cell.seconds:.0f} s{last}."
    )


def _left(table: TableDocument, results: Sequence[Result]) -> Iterator[str]:
    """The command that trains what is left, and its price."""
    left = [result for result in results if result.verdict.kind == "not yet"]
    if not left:
        return
    hours = sum(result.row.predicted_seconds for result in left) / _SECONDS_AN_HOUR
    some = any(r.verdict.seeds >= FEWEST_SEEDS for r in left)
    seeds = SETTLING_SEEDS if some else FEWEST_SEEDS
    claims = any(isinstance(result.row.claim, Reaches | Fails) for result in left)
    at_most, option = ("at most ", " --until-decided") if claims else ("", "")
    yield (
        f"Left: {_rows(left)}, predicted to take {at_most}{hours:,.1f} hours of one core for each "
        f"seed, by `reflectory reproduce {table.name} --seeds {seeds}{option} --results "
        f"{table.name}.jsonl`."
    )
    yield ""


def _rows(results: Sequence[Result]) -> str:
    return "1 row" if len(results) == 1 else f"{len(results)} rows"


def _table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    yield f"| {' | '.join(headings)} |"
    yield "|" + "|".join(" ---: " if heading in NUMERIC else " --- " for heading in headings) + "|"
    for row in rows:
        yield f"| {' | '.join(row)} |"
    yield ""


def _is_of_a_figure(row: RowEntry) -> bool:
    """Whether the paper shows curves, or claims what a training does by some update."""
    return "fig" in row.source.table.lower() or isinstance(row.claim, Reaches | Fails)


def _curves(results: Sequence[Result]) -> Iterator[str]:
    """How rows of figures were trained, beside the claims above."""
    heading, *lines = curve_texts({one.row.key: one.curve for one in results if one.curve})
    if not lines:
        return
    yield "### Over updates, means over seeds"
    yield ""
    yield f"| {' | '.join(heading)} |"
    yield "| --- |" + " ---: |" * (len(heading) - 1)
    for line in lines:
        yield f"| {' | '.join(line)} |"
    yield ""


def _searched(table: TableDocument, results: Sequence[Result]) -> Iterator[str]:
    """What a search finds at the papers' sizes, with how often it is the better one."""
    searched = [result for result in results if result.is_searched]
    yield "### Searched"
    yield ""
    yield from _table(
        (*HEADINGS[:-1], "network"), [(*one.texts()[:-1], one.networks) for one in searched]
    )
    left = [result for result in searched if result.verdict.kind == "not yet" and not result.cells]
    if left:
        hours = sum(result.row.predicted_seconds for result in left) / _SECONDS_AN_HOUR
        yield (
            f"Not searched yet: {_rows(left)}, predicted to take at most {hours:,.1f} hours of one "
            f"core, by `reflectory reproduce {table.name} --seeds 1 --systems {SEARCHED} --results "
            f"{table.name}.jsonl`."
        )
        yield ""
    gaps_to_printed = [
        _SIGN[result.row.direction] * result.verdict.difference
        for result in searched
        if isinstance(result.row.claim, PrintedValue)
        and result.verdict.difference is not None
        and result.row.unreachable is None
    ]
    yield from _comparison("the best printed value", gaps_to_printed)
    yield from _comparison(
        "the best mean that a system of the papers has here, which is chosen on test data",
        _gaps_to_measured(results),
    )


def _gaps_to_measured(results: Sequence[Result]) -> Sequence[float]:
    """How far what was found is ahead of the best system of its task, where both were measured."""
    best = dict[str, float]()
    for result in results:
        value = None if result.is_searched else _goodness(result)
        if value is not None:
            best[_task(result)] = max(value, best.get(_task(result), -math.inf))
    return [
        _SIGN[result.row.direction] * result.verdict.mean - best[_task(result)]
        for result in results
        if result.is_searched
        and result.verdict.mean is not None
        and math.isfinite(best.get(_task(result), -math.inf))
    ]


def _task(result: Result) -> str:
    """What the rows of a task share."""
    return json.dumps(result.row.spec["task"], sort_keys=True)


def _comparison(rival: str, gaps: Sequence[float]) -> Iterator[str]:
    """How often something is better than its rival, and by how much."""
    if not gaps:
        return
    half = half_width(gaps)
    if half is None:
        yield f"What was found differs by {gaps[0]:+.3g} (better is positive) from {rival}."
        yield ""
        return
    better, worse = _wins(gaps)
    yield (
        f"Better than {rival} on {better}, worse on {worse} of {len(gaps)} tasks; the mean "
        f"difference is {mean(gaps):+.3g} ± {half:.2g} (better is positive)."
    )
    yield ""


def _wins(gaps: Sequence[float]) -> tuple[int, int]:
    """On how many it is better, and on how many worse."""
    return sum(gap > 0 for gap in gaps), sum(gap < 0 for gap in gaps)


def _ranking(results: Sequence[Result]) -> Iterator[str]:
    """The systems of rows `data set/system` by their ranks, where each has all seeds."""
    values = dict[str, dict[str, float]]()
    every = {result.row.key.partition("/")[2] for result in results} - {""}
    for result in results:
        data_set, _, system = result.row.key.partition("/")
        value = None if result.row.claim is None else _goodness(result)
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
            f" Mean ranks that differ by less than {ranks.critical_difference:.2f} may do so "
            "by chance (Nemenyi, 5 %)."
            if ranks.critical_difference is not None
            else ""
        )
    )
    yield ""
    yield "| system | mean rank | printed, mean | measured, mean |"
    yield "| --- | ---: | ---: | ---: |"
    for system, rank in sorted(ranks.mean_ranks.items(), key=lambda item: item[1]):
        yield f"| {system} | {rank:.2f} | {' | '.join(_means(results, system, whole))} |"
    yield ""
    yield "| pair | wins | ties | losses | p (Wilcoxon, Holm) |"
    yield "| --- | ---: | ---: | ---: | ---: |"
    for pair in ranks.pairs:
        yield (
            f"| {pair.first}, {pair.second} | {pair.wins} | {pair.ties} | {pair.losses} | "
            f"{pair.p:.2g} |"
        )
    yield ""


def _means(results: Sequence[Result], system: str, groups: Container[str]) -> Iterator[str]:
    """A system's printed and its measured mean over some data sets; a failure leaves no mean."""
    pairs = [
        (result.row.claim.value, result.verdict.mean)
        for result in results
        if result.row.claim is not None
        and result.row.key.partition("/")[0] in groups
        and result.row.key.partition("/")[2] == system
    ]
    for column in zip(*pairs, strict=True):
        known = [value for value in column if value is not None]
        yield f"{mean(known):.3f}" if len(known) == len(column) else "–"


def _goodness(result: Result) -> float | None:
    """The mean, higher is better; None where too little is known."""
    mean = result.verdict.mean
    if len(result.cells) < FEWEST_SEEDS:
        return None
    if mean is None or any(cell.value is None for cell in result.cells):
        return -math.inf
    return _SIGN[result.row.direction] * mean
