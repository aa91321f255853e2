"""`artifacts`: the stores of checkpoints and reports themselves; no server is needed."""

import os
from dataclasses import asdict
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

from service.commands.connection import UNFINISHED, JsonOption, complain, fail, print_json
from service.data_dir.private_files import PRIVATE
from storage.blobs.places import FORMS, Place, place_of
from storage.errors import BadStoreUrl

commands = typer.Typer(no_args_is_help=True, help="Where checkpoints and reports are kept.")


@commands.callback()
def artifacts() -> None:
    """Where checkpoints and reports are kept."""
    # With a callback, a group of one command stays a group.


@commands.command(
    "copy",
    epilog="Example: reflectory artifacts copy file:///var/lib/reflectory/artifacts "
    "s3://bucket/reflectory",
)
def copy(
    source: Annotated[str, typer.Argument(metavar="FROM_URL", help=f"{FORMS}.")],
    target: Annotated[str, typer.Argument(metavar="TO_URL", help="Likewise.")],
    as_json: JsonOption = False,
) -> None:
    """Copy all artifacts from one store into another, each checked against its digest.

    Begun again after an interruption, it goes on where it was. Copy while a server works, then once
    more when it is stopped, and start it with REFLECTORY_ARTIFACTS_URL.
    """
    os.umask(PRIVATE)
    places = _place(source), _place(target)
    # Only this command needs the stores: the others start without them.
    from storage.blobs.copies import Copied, copy_artifacts
    from storage.blobs.stores import open_store
    from storage.errors import StorageError

    if places[0] == places[1]:
        raise typer.BadParameter("FROM_URL and TO_URL name the same place")
    columns = (TextColumn("artifacts"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, console=Console(stderr=True), disable=as_json) as progress:
        bar = progress.add_task("artifacts", total=None)

        def told(so_far: Copied) -> None:
            progress.update(bar, total=so_far.total, completed=so_far.done)

        try:
            stores = [open_store(place) for place in places]
            stores[1].check_access()
            if stores[0].is_new():
                fail(f"{places[0]} holds no artifacts", UNFINISHED, as_json=as_json)
            copied = copy_artifacts(stores[0], stores[1], told=told)
        except (StorageError, OSError) as error:
            fail(str(error), UNFINISHED, as_json=as_json)
    if as_json:
        print_json(asdict(copied))
    else:
        typer.echo(
            f"{copied.copied} artifacts were copied ({copied.size} bytes), "
            f"{copied.present} were there already"
        )
        for digest in copied.damaged:
            complain(f"{digest} is damaged in {places[0]} and was not copied")
    if copied.damaged:
        raise typer.Exit(UNFINISHED)


def _place(url: str) -> Place:
    try:
        return place_of(url)
    except BadStoreUrl as error:
        raise typer.BadParameter(str(error)) from error
