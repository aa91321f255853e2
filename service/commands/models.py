"""`models list`, `upload`, `show`, `download` and `delete`."""

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from service.commands.arguments import ModelArgument
from service.commands.bars import transfer_bar
from service.commands.connection import (
    DataDirOption,
    JsonOption,
    ServerOption,
    connected,
    print_json,
)
from service.commands.model_tables import model_table, models_table

commands = typer.Typer(
    help="Your own trained models, for studies to compress.", no_args_is_help=True
)

_File = typer.Argument(
    metavar="FILE",
    exists=True,
    dir_okay=False,
    readable=True,
    help="A .safetensors: a trial's checkpoint, or the state dict of plain torch layers.",
)


class Nonlinearity(StrEnum):
    """What stands between layers, where a file does not tell."""

    TANH = "tanh"
    RELU = "relu"
    LEAKY_RELU = "leaky_relu"
    ABS = "abs"
    IDENTITY = "identity"


@commands.command("list", epilog="Example: reflectory models list")
def list_models(
    server: ServerOption = None, data_dir: DataDirOption = None, as_json: JsonOption = False
) -> None:
    """List uploaded models, newest first."""
    with connected(server, data_dir, as_json=as_json) as client:
        models = list(client.models())
    if as_json:
        print_json([model.model_dump(mode="json") for model in models])
    elif models:
        Console().print(models_table(models))
    else:
        typer.echo("no models")


@commands.command(epilog="Example: reflectory models upload gru.safetensors --name 'my GRU'")
def upload(
    file: Annotated[Path, _File],
    name: Annotated[str | None, typer.Option(help="By default the file's own.")] = None,
    nonlinearity: Annotated[
        Nonlinearity | None,
        typer.Option(help="Of an nn.RNN (else tanh), or between linear layers (else relu)."),
    ] = None,
    every_step: Annotated[
        bool, typer.Option("--every-step", help="The readout answers after every step.")
    ] = False,
    sequence_length: Annotated[
        int | None,
        typer.Option(min=1, help="Steps of a sample, where linear layers read all of them."),
    ] = None,
    server: ServerOption = None,
    data_dir: DataDirOption = None,
    as_json: JsonOption = False,
) -> None:
    """Upload a trained model and show what was found in its file."""
    with (
        connected(server, data_dir, as_json=as_json) as client,
        transfer_bar(file.name, quiet=as_json, afterwards="the server reads it") as told,
    ):
        model = client.upload_model(
            file,
            name=name,
            nonlinearity=nonlinearity,
            output_steps="every" if every_step else None,
            sequence_length=sequence_length,
            told=told,
        )
    if as_json:
        print_json(model)
    else:
        Console().print(model_table(model))


@commands.command(epilog="Example: reflectory models show 5d41402abc4b")
def show(
    model_id: ModelArgument,
    server: ServerOption = None,
    data_dir: DataDirOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show what a model is."""
    with connected(server, data_dir, as_json=as_json) as client:
        model = client.model(model_id)
    if as_json:
        print_json(model)
    else:
        Console().print(model_table(model))


@commands.command(epilog="Example: reflectory models download 5d41402abc4b --out gru.safetensors")
def download(
    model_id: ModelArgument,
    out: Annotated[
        Path | None,
        typer.Option(dir_okay=False, help="File to write; by default ID.safetensors."),
    ] = None,
    server: ServerOption = None,
    data_dir: DataDirOption = None,
    as_json: JsonOption = False,
) -> None:
    """Download a model as a checkpoint with its spec."""
    with connected(server, data_dir, as_json=as_json) as client:
        # The server's own word for the model: what the user wrote names no path.
        file = Path(f"{client.model(model_id).id}.safetensors") if out is None else out
        with transfer_bar(file.name, quiet=as_json) as told:
            client.download_model(model_id, file, told=told)
    if as_json:
        print_json({"file": str(file)})
    else:
        typer.echo(file)


@commands.command(epilog="Example: reflectory models delete 5d41402abc4b")
def delete(
    model_id: ModelArgument,
    server: ServerOption = None,
    data_dir: DataDirOption = None,
    as_json: JsonOption = False,
) -> None:
    """Delete a model that no running study compresses."""
    with connected(server, data_dir, as_json=as_json) as client:
        client.delete_model(model_id)
    if as_json:
        print_json({"deleted": model_id})
    else:
        typer.echo(f"model {model_id} is deleted")
