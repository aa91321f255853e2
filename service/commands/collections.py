"""`collections list`, `show`, `ranks`, `results`, `pause`, `resume`, `cancel` and `delete`."""

import time
from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any

import typer

from service.api.collections.schemas import CollectionDocument
from service.commands.connection import UNFINISHED, Asked, asking, print_json
from service.commands.given.arguments import CollectionArgument
from service.commands.given.confirmation import YesOption, confirm
from service.commands.given.references import described
from service.commands.shown.collection_tables import (
    COLLECTIONS,
    collection_table,
    dry_run_lines,
    ranks_tables,
    results_table,
)
from service.commands.shown.listing import (
    FormOption,
    LimitOption,
    SortOption,
    WideOption,
    Wishes,
    show_list,
)

commands = typer.Typer(
    help="Studies of several data sets, and ranks over them.", no_args_is_help=True
)

_LOOK_SECONDS = 1.0
_INTERRUPTED = 130


class _Form(StrEnum):
    TABLE = "table"
    CSV = "csv"
    MARKDOWN = "markdown"


@commands.command("list", epilog="Example: reflectory collections list")
@asking
def list_collections(
    asked: Asked,
    wide: WideOption = False,
    form: FormOption = None,
    sort: SortOption = None,
    limit: LimitOption = None,
) -> None:
    """List collections, newest first."""
    wishes = Wishes(wide=wide, form=form, sort=sort, limit=limit)
    found = asked.client.collections()
    show_list(found, COLLECTIONS, wishes, as_json=asked.as_json, nothing="no collections")


@commands.command(epilog="Example: reflectory collections show 5d41402abc4b")
@asking
def show(asked: Asked, collection_id: CollectionArgument) -> None:
    """Show where each study of a collection stands."""
    collection = asked.client.collection(collection_id)
    asked.show(collection, collection_table(collection))


@commands.command(epilog='Example: reflectory collections ranks latest --kind "gru dense"')
@asking
def ranks(
    asked: Asked,
    collection_id: CollectionArgument,
    kind: Annotated[
        list[str] | None,
        typer.Option(
            help='Compare this kind of model alone, as "gru dense", and others that are named; by '
            "default all."
        ),
    ] = None,
) -> None:
    """Show mean ranks of kinds of models over the data sets, and whether they differ."""
    found = asked.client.collection_ranks(collection_id, kinds=kind or ())
    asked.show(found, *ranks_tables(found))


@commands.command(epilog="Example: reflectory collections results latest --format markdown")
@asking
def results(
    asked: Asked,
    collection_id: CollectionArgument,
    form: Annotated[
        _Form, typer.Option("--format", help="Markdown has the ranks too.")
    ] = _Form.TABLE,
) -> None:
    """Show the best trial of each data set."""
    if form is not _Form.TABLE:
        if asked.as_json:
            raise typer.BadParameter(f"--json and --format {form} exclude each other")
        typer.echo(asked.client.collection_table(collection_id, format=form.value), nl=False)
        return
    found = asked.client.collection_results(collection_id)
    asked.show(found, results_table(found))


@commands.command(epilog="Example: reflectory collections pause latest")
@asking
def pause(asked: Asked, collection_id: CollectionArgument) -> None:
    """Pause all studies of a collection."""
    _show(asked, asked.client.pause_collection(collection_id))


@commands.command(epilog="Example: reflectory collections resume latest")
@asking
def resume(asked: Asked, collection_id: CollectionArgument) -> None:
    """Resume all paused studies of a collection."""
    _show(asked, asked.client.resume_collection(collection_id))


@commands.command(epilog="Example: reflectory collections cancel 5d41402abc4b")
@asking
def cancel(asked: Asked, collection_id: CollectionArgument, yes: YesOption = False) -> None:
    """Cancel all studies of a collection; what is complete stays."""
    collection = asked.client.collection(collection_id)
    going = sum(not one.state.has_ended for one in collection.studies)
    confirm(
        f"Cancel collection {described(collection)}, of which {_studies(going)} have not ended",
        yes=yes,
        as_json=asked.as_json,
        undone="Nothing was cancelled.",
    )
    _show(asked, asked.client.cancel_collection(collection_id))


@commands.command(epilog="Example: reflectory collections delete 5d41402abc4b")
@asking
def delete(asked: Asked, collection_id: CollectionArgument, yes: YesOption = False) -> None:
    """Delete a collection with all of its studies, which have ended."""
    collection = asked.client.collection(collection_id)
    confirm(
        f"Delete collection {described(collection)} with {_studies(len(collection.studies))}",
        yes=yes,
        as_json=asked.as_json,
        undone="Nothing was deleted.",
    )
    asked.client.delete_collection(collection_id)
    asked.show({"deleted": collection_id}, f"collection {collection_id} is deleted")


def submit_collection(
    asked: Asked, document: Mapping[str, Any], *, watch: bool, dry_run: bool
) -> None:
    """Submit a document of several tasks or data sets."""
    if dry_run:
        answer = asked.client.dry_run_collection(document)
        asked.show(answer, dry_run_lines(answer))
        return
    collection = asked.client.submit_collection(document)
    asked.show(collection, _links(asked, collection))
    if watch:
        _follow(asked, collection)


def _follow(asked: Asked, collection: CollectionDocument) -> None:
    """Tell of a collection until it has ended, and show its results.

    Raises:
        typer.Exit: a study failed or was cancelled, or Ctrl-C ended the watching.
    """
    from service.client.transport.described import WATCH_PATIENCE

    shown = _standing(collection)
    try:
        while not collection.ended:
            time.sleep(_LOOK_SECONDS)
            collection = asked.client.collection(collection.id, patience=WATCH_PATIENCE)
            if _standing(collection) != shown and not asked.as_json:
                shown = _standing(collection)
                typer.echo(shown)
    except KeyboardInterrupt:
        typer.echo(
            f"\nThe collection goes on. See it again: reflectory collections show {collection.id}; "
            f"end it: reflectory collections cancel {collection.id}",
            err=True,
        )
        raise typer.Exit(_INTERRUPTED) from None
    if asked.as_json:
        print_json(collection)
    else:
        found = asked.client.collection_results(collection.id)
        asked.show(None, results_table(found))
        _show(asked, collection)
    if collection.state != "finished":
        raise typer.Exit(UNFINISHED)


def _standing(collection: CollectionDocument) -> str:
    totals = collection.totals
    states = ", ".join(f"{count} {state}" for state, count in collection.states.items())
    return f"{states}; {totals.trials:,} trials ended, {totals.epochs_trained:,} epochs"


def _links(asked: Asked, collection: CollectionDocument) -> str:
    """Where to look at a collection, line by line."""
    studies = _studies(len(collection.studies))
    links = [
        f"  {name:<8} {asked.client.server}{collection.links[name]}"
        for name in ("page", "results", "ranks")
    ]
    about = f"collection {collection.id} ({collection.name}) of {studies} is {collection.state}"
    return "\n".join([about, *links])


def _studies(count: int) -> str:
    return f"{count} {'study' if count == 1 else 'studies'}"


def _show(asked: Asked, collection: CollectionDocument) -> None:
    states = ", ".join(f"{count} {state}" for state, count in collection.states.items())
    asked.show(collection, f"collection {collection.id} is {collection.state}: {states}")
