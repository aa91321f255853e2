"""Collections for people: lists, where one stands, what was found, and ranks."""

from collections.abc import Iterator, Sequence

from rich.markup import escape
from rich.table import Table

from search.documents.readable import NONE, metric, number
from service.api.collections.schemas import (
    CollectionDocument,
    CollectionDryRun,
    CollectionEntry,
    RanksDocument,
    ResultsDocument,
)
from service.commands.given.references import SHORT
from service.commands.shown.listing import Column, age, moment
from service.commands.shown.tables import add_columns, empty_table

COLLECTIONS: Sequence[Column[CollectionEntry]] = (
    Column("id", lambda one: one.id, lambda one: one.id[:SHORT], wide=False),
    Column("id", lambda one: one.id, narrow=False),
    Column("name", lambda one: one.name, is_cut=True),
    Column("state", lambda one: str(one.state)),
    Column("studies", lambda one: sum(one.states.values()), number=True),
    Column(
        "age",
        lambda one: -one.created_at.timestamp(),
        lambda one: age(one.created_at),
        number=True,
        wide=False,
    ),
    Column("created", lambda one: one.created_at, lambda one: moment(one.created_at), narrow=False),
)


def collection_table(collection: CollectionDocument) -> Table:
    """Where each study of a collection stands."""
    table = empty_table(f"{escape(collection.name)} ({collection.id}) is {collection.state}")
    table.caption = "\n".join(_taken(collection))
    table.add_column("data set", overflow="fold")
    table.add_column("study", no_wrap=True)
    table.add_column("state", overflow="fold")
    add_columns(table, "progress", "complete", numbers=True)
    for one in collection.studies:
        done, total = one.progress.steps
        reason = f" ({one.state_reason})" if one.state_reason else ""
        complete = str(one.progress.trials.complete)
        cells = (one.study, escape(f"{one.state}{reason}"), f"{done}/{total}", complete)
        table.add_row(escape(one.row), *cells)
    return table


def _taken(collection: CollectionDocument) -> Iterator[str]:
    totals, budget = collection.totals, collection.collection_budget or {}
    trials = ("trials ended", number(totals.trials))
    if totals.trainings is not None:
        yield f"trials ended: {number(totals.trials)}"
        trials = ("whole trainings", number(totals.trainings))
    found = {
        "trials": trials,
        "total_epochs": ("epochs trained", number(totals.epochs_trained)),
        "device_hours": ("device hours", f"{totals.device_hours:.3f}"),
    }
    for name, (what, used) in found.items():
        yield f"{what}: {used}" + (f" of {budget[name]:,}" if name in budget else "")


def dry_run_lines(answer: CollectionDryRun) -> Table:
    """What the study of each data set would search."""
    table = empty_table(f"{len(answer.studies)} studies")
    table.add_column("data set", overflow="fold")
    add_columns(table, "candidates", "dimensions", "parameters from", "to", numbers=True)
    for one in answer.studies:
        sizes = one.study.parameter_range
        counts = (len(one.study.candidates), len(one.study.dimensions), sizes.low, sizes.high)
        table.add_row(escape(one.row), *map(number, counts))
    return table


def results_table(results: ResultsDocument) -> Table:
    """The best trial of each data set."""
    table = empty_table(f"{escape(results.name)} ({results.id}) is {results.state}")
    table.caption = "Validation data chose the trial."
    add_columns(table, "data set", "best model")
    add_columns(table, "trial", "validation", "test", "parameters", "front", numbers=True)
    for one in results.sets:
        cells = [NONE] * 5
        if one.best is not None:
            whole = one.best.outcome == "complete"
            cells = [
                one.best.kind if whole else f"{one.best.kind} ({one.best.outcome})",
                str(one.best.trial),
                metric(one.metric, one.best.quality),
                metric(one.metric, one.best.test_quality),
                number(one.best.parameters),
            ]
        table.add_row(escape(one.row), *cells, str(len(one.front)))
    return table


def ranks_tables(ranks: RanksDocument) -> Iterator[Table | str]:
    """Ranks of kinds of models, pairs of them, and what was left out."""
    if ranks.friedman_p is None:
        yield "ranks need two data sets that have two kinds of models in common"
    else:
        yield _ranked(ranks, ranks.friedman_p)
        yield _pairs(ranks)
    for one in ranks.left_out:
        yield f"left out: {one.row}, which lacks {', '.join(one.lacks)}"


def _ranked(ranks: RanksDocument, friedman_p: float) -> Table:
    table = empty_table(f"Mean ranks over {len(ranks.sets)} data sets, 1 is the best")
    difference = ranks.critical_difference
    critical = "" if difference is None else f", Nemenyi critical difference {difference:.2f}"
    table.caption = (
        f"Friedman p = {friedman_p:.3g}{critical}\n"
        "front: no other model has as good a rank with as few parameters"
    )
    add_columns(table, "model")
    add_columns(table, "mean rank", "parameters", numbers=True)
    add_columns(table, "front")
    for one in ranks.ranked:
        cells = (f"{one.mean_rank:.2f}", number(round(one.parameters)))
        table.add_row(one.kind, *cells, "yes" if one.on_front else "")
    return table


def _pairs(ranks: RanksDocument) -> Table:
    table = empty_table("Pairs on the same data sets")
    how = "Wilcoxon's signed ranks"
    if ranks.pair_test == "signs":
        how = "signs alone, for data sets have different metrics"
    table.caption = f"p by {how}, adjusted by Holm"
    add_columns(table, "first", "second")
    add_columns(table, "wins", "ties", "losses", "p", numbers=True)
    for one in ranks.pairs:
        counts = map(str, (one.wins, one.ties, one.losses))
        table.add_row(one.first, one.second, *counts, f"{one.p:.3g}")
    return table
