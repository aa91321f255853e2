"""`backup`: a copy of a running server, from which another can start."""

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from service.commands.connection import (
    REFUSED,
    DataDirOption,
    JsonOption,
    fail,
    print_json,
    settings_of_server,
)


def backup(
    folder: Annotated[
        Path,
        typer.Argument(file_okay=False, help="Where to; a backup there is brought up to date."),
    ],
    data_dir: DataDirOption = None,
    as_json: JsonOption = False,
) -> None:
    """Copy rows, files and the signing secret of a server, which may run meanwhile.

    Of SQLite the copy is a data directory: serve it, or a copy of it, to have the server back.
    """
    # Only this command needs the database: the others start without it.
    from service.data_dir.backup import NoPlaceForBackup, back_up
    from storage.errors import StorageError

    settings = settings_of_server(data_dir=data_dir)
    try:
        made = back_up(settings, folder)
    except NoPlaceForBackup as error:
        fail(str(error), REFUSED, as_json=as_json)
    except (StorageError, OSError) as error:
        fail(str(error), 1, as_json=as_json)
    if as_json:
        print_json(asdict(made))
        return
    typer.echo(f"{folder} holds the rows and {made.artifacts} files, {made.copied} of them new")
    if not made.secret:
        typer.echo("  REFLECTORY_SECRET is not in it: keep it elsewhere", err=True)
