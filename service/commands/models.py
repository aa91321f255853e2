"""`models list`, `upload`, `show`, `download` and `delete`."""

from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from service.commands.connection import Asked, asking
from service.commands.given.arguments import ModelArgument
from service.commands.given.confirmation import YesOption, confirm
from service.commands.given.option_names import by_option
from service.commands.given.references import described
from service.commands.shown.bars import transfer_bar
from service.commands.shown.listing import (
    FormOption,
    LimitOption,
    SortOption,
    WideOption,
    Wishes,
    show_list,
)
from service.commands.shown.model_tables import MODELS, model_table, stored_name

commands = typer.Typer(
    help="Your own trained models, for studies to compress.", no_args_is_help=True
)

_File = typer.Argument(
    metavar="FILE",
    exists=True,
    dir_okay=False,
    readable=True,
    help="A .safetensors (a trial's checkpoint, or the state dict of plain torch layers), or the "
    ".onnx of any network.",
)


class Nonlinearity(StrEnum):
    """What stands between layers, where a file does not tell."""

    TANH = "tanh"
    RELU = "relu"
    LEAKY_RELU = "leaky_relu"
    ABS = "abs"
    IDENTITY = "identity"


NonlinearityOption = Annotated[
    Nonlinearity | None,
    typer.Option(help="Of an nn.RNN (else tanh), or between linear layers (else relu)."),
]
EveryStepOption = Annotated[
    bool, typer.Option("--every-step", help="The readout answers after every step.")
]
SequenceLengthOption = Annotated[
    int | None,
    typer.Option(min=1, help="Steps of a sample, where linear layers read all of them."),
]
UPLOAD_OPTIONS: Mapping[str, str] = {
    "file": "FILE",
    "name": "--name",
    "nonlinearity": "--nonlinearity",
    "output_steps": "--every-step",
    "sequence_length": "--sequence-length",
}
"""By part of an upload, the option that says it."""


@commands.command("list", epilog="Example: reflectory models list")
@asking
def list_models(
    asked: Asked,
    wide: WideOption = False,
    form: FormOption = None,
    sort: SortOption = None,
    limit: LimitOption = None,
) -> None:
    """List uploaded models, newest first."""
    wishes = Wishes(wide=wide, form=form, sort=sort, limit=limit)
    show_list(asked.client.models(), MODELS, wishes, as_json=asked.as_json, nothing="no models")


@commands.command(epilog="Example: reflectory models upload gru.safetensors --name 'my GRU'")
@asking
def upload(
    asked: Asked,
    file: Annotated[Path, _File],
    name: Annotated[str | None, typer.Option(help="By default the file's own.")] = None,
    nonlinearity: NonlinearityOption = None,
    every_step: EveryStepOption = False,
    sequence_length: SequenceLengthOption = None,
) -> None:
    """Upload a trained model and show what was found in its file."""
    with (
        by_option(UPLOAD_OPTIONS, as_json=asked.as_json),
        transfer_bar(file.name, quiet=asked.as_json, afterwards="the server reads it") as told,
    ):
        model = asked.client.upload_model(
            file,
            name=name,
            nonlinearity=nonlinearity,
            output_steps="every" if every_step else None,
            sequence_length=sequence_length,
            told=told,
        )
    asked.show(model, model_table(model))


@commands.command(epilog="Example: reflectory models show 5d41402abc4b")
@asking
def show(asked: Asked, model_id: ModelArgument) -> None:
    """Show what a model is."""
    model = asked.client.model(model_id)
    asked.show(model, model_table(model))


@commands.command(epilog="Example: reflectory models download 5d41402abc4b --out gru.safetensors")
@asking
def download(
    asked: Asked,
    model_id: ModelArgument,
    out: Annotated[
        Path | None,
        typer.Option(dir_okay=False, help="File to write; by default ID.safetensors, or ID.onnx."),
    ] = None,
) -> None:
    """Download a model as a checkpoint with its spec, or as the ONNX file that was uploaded."""
    # The server's own word for the model: what the user wrote names no path.
    file = Path(stored_name(asked.client.model(model_id))) if out is None else out
    with transfer_bar(file.name, quiet=asked.as_json) as told:
        asked.client.download_model(model_id, file, told=told)
    asked.show({"file": str(file)}, str(file))


@commands.command(epilog="Example: reflectory models delete 5d41402abc4b")
@asking
def delete(asked: Asked, model_id: ModelArgument, yes: YesOption = False) -> None:
    """Delete a model that no running study compresses."""
    model = asked.client.model(model_id)
    confirm(
        f"Delete model {described(model)} with {model.parameters:,} parameters",
        yes=yes,
        as_json=asked.as_json,
        undone="Nothing was deleted.",
    )
    asked.client.delete_model(model_id)
    asked.show({"deleted": model_id}, f"model {model_id} is deleted")
