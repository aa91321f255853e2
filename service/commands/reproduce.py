"""`reproduce`: train the rows of a paper's table, and say what became of what is printed."""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

import typer

from search.documents.papers import TableDocument
from search.errors import UnknownName
from search.papers import BUDGET_IN_WORDS, TABLES, rows_named
from search.papers.cells import BadResults, Cell, append_cell, read_cells
from service.commands.connection import Asked, asking, complain
from service.commands.reproduction.markdown import document_of
from service.commands.reproduction.results import (
    HEADINGS,
    Result,
    as_csv,
    as_curves,
    as_html,
    as_text,
    results_of,
)
from service.commands.reproduction.run import Plan, Reproduction, plans
from service.data_dir.whole_files import write_whole

_Form: TypeAlias = Literal["text", "csv", "html", "curves"]

_SECONDS: Mapping[str, float] = {"s": 1, "m": 60, "min": 60, "h": 3600, "d": 86400}
_RESULTS = "reproduction"
"""The folder beside the document that holds files of results."""


@asking
def reproduce(
    asked: Asked,
    table: Annotated[
        str | None, typer.Argument(metavar="TABLE", help="As `reflectory papers` lists them.")
    ] = None,
    rows: Annotated[
        str | None,
        typer.Option(metavar="ROW,ROW", help="Only these rows or groups of them; by default all."),
    ] = None,
    systems: Annotated[
        str | None, typer.Option(metavar="SYSTEM,SYSTEM", help="Only rows of these systems.")
    ] = None,
    searched: Annotated[
        bool,
        typer.Option(
            "--searched",
            help=f"The searched rows too: the best of {BUDGET_IN_WORDS}, of a study within the "
            "parameters of the largest system.",
        ),
    ] = False,
    seeds: Annotated[int, typer.Option(min=1, max=1000, help="Trainings of each row.")] = 5,
    budget: Annotated[
        str | None,
        typer.Option(
            metavar="TIME",
            help="Device time of this call, as 90s, 30min or 2h. What runs when it is used up is "
            "paused, and the next call goes on with it.",
        ),
    ] = None,
    unfinished: Annotated[
        bool,
        typer.Option(
            "--unfinished",
            help="Train even where --budget is less than a row is predicted to take. How far a "
            "training came is kept in --results in any case.",
        ),
    ] = False,
    until_decided: Annotated[
        bool,
        typer.Option(
            "--until-decided",
            help="Pause a training as soon as its validation data show that it reaches what the "
            "paper says is reached, or is not: later updates do not change the verdict.",
        ),
    ] = False,
    watch: Annotated[bool, typer.Option("--watch", help="Say each result as it comes.")] = False,
    form: Annotated[
        _Form,
        typer.Option(
            "-o",
            "--output",
            help="How results are printed; `curves`: how they were trained, as CSV.",
        ),
    ] = "text",
    results: Annotated[
        Path | None,
        typer.Option(
            dir_okay=False,
            help="File of JSON lines: what it has is not trained again; what ends is added, and "
            "how far paused trainings came.",
        ),
    ] = None,
    document: Annotated[
        Path | None,
        typer.Option(
            dir_okay=False,
            help="Write every row of every table to this Markdown file, by the files of --cells; "
            "alone it trains nothing.",
        ),
    ] = None,
    cells: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            file_okay=False,
            exists=True,
            help="Where the *.jsonl are that --document reads, TABLE.md with what was found about "
            "a table, and summary.md about all; by default the folder `reproduction` beside the "
            "document.",
        ),
    ] = None,
) -> None:
    """Train the rows of a paper's table, and print what is measured beside what is printed.

    Rows are ordinary studies, one for each seed, the cheapest first. A call that is repeated finds
    what exists and goes on. Rows whose printed number cannot be reached are not trained, and the
    reason is listed; where nothing is printed, what is measured stands alone.
    """
    if table is not None:
        _train(
            asked,
            asked.client.paper_table(table),
            rows=_names(rows),
            systems=_names(systems),
            searched=searched,
            seeds=seeds,
            budget_seconds=None if budget is None else _seconds(budget),
            unfinished=unfinished,
            until_decided=until_decided,
            watch=watch,
            form=form,
            results=results,
        )
    elif document is None:
        raise typer.BadParameter(
            f"name a table, of {', '.join(TABLES)}, or --document", param_hint="TABLE"
        )
    if document is not None:
        _write(document, cells or document.parent / _RESULTS)
        asked.show({"file": str(document)}, *([] if table else [str(document)]))


def _train(
    asked: Asked,
    table: TableDocument,
    *,
    rows: Sequence[str],
    systems: Sequence[str],
    searched: bool,
    seeds: int,
    budget_seconds: float | None,
    unfinished: bool,
    until_decided: bool,
    watch: bool,
    form: _Form,
    results: Path | None,
) -> None:
    try:
        chosen = rows_named(table.entries, rows=rows, systems=systems, searched=searched)
        cells = [] if results is None else read_cells(results)
    except (UnknownName, BadResults) as error:
        raise typer.BadParameter(str(error)) from error

    def finished(plan: Plan, cell: Cell) -> None:
        cells.append(cell)
        if results is not None:
            append_cell(results, cell)
        if watch:
            value = cell.reason if cell.value is None else f"{cell.value:.4g}"
            if cell.unfinished:
                value = f"paused after {cell.updates:,} of {plan.row.updates:,} updates"
            typer.echo(f"{plan.row.key}, seed {cell.seed}: {value}, {cell.seconds:.0f} s", err=True)

    todo = plans(table.name, chosen, seeds=seeds, done=cells, until_decided=until_decided)
    if not unfinished:
        _refuse_too_small(todo, budget_seconds)
    run = Reproduction(asked.client, budget_seconds, finished, until_decided)
    run.run(todo)
    found = results_of(table, chosen, cells, refused=run.refused)
    _show(asked, found, title=table.title, form=form)
    for key, why in (*run.refused.items(), *run.lost.items()):
        complain(f"{key}: {why}")
    if run.paused:
        complain(
            f"the budget of device time is used up after {run.used_seconds:.0f} s; paused are "
            f"{len(run.paused)} studies, with which the next call goes on"
        )


def _refuse_too_small(todo: Sequence[Plan], budget_seconds: float | None) -> None:
    """Refuse a budget in which no row is likely to end."""
    if budget_seconds is None or not todo:
        return
    cheapest = todo[0].row
    if budget_seconds < cheapest.predicted_seconds:
        raise typer.BadParameter(
            f"{budget_seconds:g} s are less than the cheapest row that is left is predicted to "
            f"take: {cheapest.key}, {math.ceil(cheapest.predicted_seconds)} s for one seed; with "
            "--unfinished it is trained as far as they go",
            param_hint="--budget",
        )


def _show(asked: Asked, found: Sequence[Result], *, title: str, form: _Form) -> None:
    if asked.as_json:
        asked.show([dict(zip(HEADINGS, one.texts(), strict=True)) for one in found])
        return
    asked.show(None, _FORMS[form](found, title))


_FORMS: Mapping[_Form, Callable[[Sequence[Result], str], Any]] = {
    "text": lambda found, title: as_text(found, title=title),
    "csv": lambda found, _title: as_csv(found).rstrip(),
    "curves": lambda found, _title: as_curves(found).rstrip(),
    "html": lambda found, title: as_html(found, title=title).rstrip(),
}


def _write(document: Path, folder: Path) -> None:
    """Write the document by the files of a folder: cells, and what was found about tables.

    Raises:
        typer.BadParameter: one of them is damaged.
    """
    try:
        text = document_of(folder)
    except BadResults as error:
        raise typer.BadParameter(str(error)) from error
    write_whole(document, text, private=False)


def _names(text: str | None) -> Sequence[str]:
    return [] if text is None else [name.strip() for name in text.split(",") if name.strip()]


def _seconds(text: str) -> float:
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([a-z]+)", text.strip())
    if match is None or match[2] not in _SECONDS:
        raise typer.BadParameter(
            f"{text!r} is no time; allowed is a number with {', '.join(_SECONDS)}, such as 2h",
            param_hint="--budget",
        )
    return float(match[1]) * _SECONDS[match[2]]
