"""`datasets list`, `upload`, `show` and `delete`."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from service.commands.arguments import DatasetArgument
from service.commands.bars import transfer_bar
from service.commands.connection import (
    DataDirOption,
    JsonOption,
    ServerOption,
    connected,
    print_json,
)
from service.commands.tables import dataset_table, datasets_table

commands = typer.Typer(help="Your own data, for studies to train on.", no_args_is_help=True)

_File = typer.Argument(
    metavar="FILE", exists=True, dir_okay=False, readable=True, help="A .npz, .csv, .tsv or .ts."
)


class _Problem(StrEnum):
    CLASSIFICATION = "classification"
    REGRESSION = "regression"
    MULTILABEL = "multilabel"
    FORECASTING = "forecasting"


@commands.command("list", epilog="Example: reflectory datasets list")
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


@commands.command(
    epilog="Example: reflectory datasets upload motions_TRAIN.ts --test motions_TEST.ts"
)
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
        typer.Option(help="The target's column in a csv or tsv, by name or by number from 0."),
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
    with (
        connected(server, data_dir, as_json=as_json) as client,
        transfer_bar(file.name, quiet=as_json, afterwards="the server reads it") as told,
    ):
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


@commands.command(epilog="Example: reflectory datasets show 5d41402abc4b")
def show(
    dataset_id: DatasetArgument,
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


@commands.command(epilog="Example: reflectory datasets delete 5d41402abc4b")
def delete(
    dataset_id: DatasetArgument,
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
