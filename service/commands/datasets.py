"""`datasets list`, `upload`, `show` and `delete`."""

from collections.abc import Generator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

from service.commands.connection import (
    DataDirOption,
    JsonOption,
    ServerOption,
    connected,
    is_terminal,
    print_json,
)
from service.commands.tables import dataset_table, datasets_table
from service.downloads import ToldProgress

commands = typer.Typer(help="Your own data, for studies to train on.", no_args_is_help=True)

_IdArgument = Annotated[str, typer.Argument(metavar="ID", help="The data set's id.")]
_File = typer.Argument(
    metavar="FILE", exists=True, dir_okay=False, readable=True, help="A .npz, .csv, .tsv or .ts."
)


class _Problem(StrEnum):
    CLASSIFICATION = "classification"
    REGRESSION = "regression"
    MULTILABEL = "multilabel"
    FORECASTING = "forecasting"


@commands.command("list")
def list_datasets(
    server: ServerOption = None, data_dir: DataDirOption = None, as_json: JsonOption = False
) -> None:
    """List data sets, newest first."""
    with connected(server, data_dir, as_json=as_json) as client:
        datasets = list(client.datasets())
    if as_json:
        print_json([dataset.model_dump(mode="json") for dataset in datasets])
    elif datasets:
        Console().print(datasets_table(datasets))
    else:
        typer.echo("no data sets")


@commands.command()
def upload(
    file: Annotated[Path, _File],
    test: Annotated[
        Path | None,
        typer.Option(exists=True, dir_okay=False, help="The official test part, in a file."),
    ] = None,
    name: Annotated[str | None, typer.Option(help="By default the file's own.")] = None,
    problem: Annotated[
        _Problem | None, typer.Option(help="By default what the targets look like.")
    ] = None,
    label: Annotated[
        str | None,
        typer.Option(help="csv, tsv: the target's column, by name or by number from 0."),
    ] = None,
    pad: Annotated[
        bool, typer.Option("--pad", help="Pad series of different lengths, and mask.")
    ] = False,
    fill: Annotated[
        bool, typer.Option("--fill", help="Replace missing values by their feature's mean.")
    ] = False,
    server: ServerOption = None,
    data_dir: DataDirOption = None,
    as_json: JsonOption = False,
) -> None:
    """Upload a data set and show what was found in it."""
    with connected(server, data_dir, as_json=as_json) as client, _bar(file, as_json) as told:
        dataset = client.upload_dataset(
            file,
            test,
            name=name,
            problem=problem,
            label=label,
            unequal_lengths="pad" if pad else None,
            missing="mean" if fill else None,
            told=told,
        )
    if as_json:
        print_json(dataset)
        return
    Console().print(dataset_table(dataset))
    typer.echo(f'train on it by "task": {{"kind": "dataset", "id": "{dataset.id}"}}')


@commands.command()
def show(
    dataset_id: _IdArgument,
    server: ServerOption = None,
    data_dir: DataDirOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show what a data set holds."""
    with connected(server, data_dir, as_json=as_json) as client:
        dataset = client.dataset(dataset_id)
    if as_json:
        print_json(dataset)
    else:
        Console().print(dataset_table(dataset))


@commands.command()
def delete(
    dataset_id: _IdArgument,
    server: ServerOption = None,
    data_dir: DataDirOption = None,
    as_json: JsonOption = False,
) -> None:
    """Delete a data set that no running study uses."""
    with connected(server, data_dir, as_json=as_json) as client:
        client.delete_dataset(dataset_id)
    if as_json:
        print_json({"deleted": dataset_id})
    else:
        typer.echo(f"data set {dataset_id} is deleted")


@contextmanager
def _bar(file: Path, as_json: bool) -> Generator[ToldProgress | None]:
    """A bar that shows how far an upload is, where a person watches."""
    if as_json or not is_terminal():
        yield None
        return
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn())
    with Progress(*columns, TransferSpeedColumn(), transient=True) as progress:
        task = progress.add_task(file.name)

        def told(sent: int, total: int | None) -> None:
            waiting = "the server reads it" if sent == total else file.name
            progress.update(task, completed=sent, total=total, description=waiting)

        yield told
