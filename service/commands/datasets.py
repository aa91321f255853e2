"""`datasets list`, `upload`, `show` and `delete`."""

from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from service.commands.connection import Asked, asking
from service.commands.given.arguments import DatasetArgument
from service.commands.given.confirmation import YesOption, confirm
from service.commands.given.option_names import by_option
from service.commands.given.references import described
from service.commands.shown.bars import transfer_bar
from service.commands.shown.dataset_tables import DATASETS, dataset_table, samples_of
from service.commands.shown.listing import (
    FormOption,
    LimitOption,
    SortOption,
    WideOption,
    Wishes,
    show_list,
)

commands = typer.Typer(help="Your own data, for studies to train on.", no_args_is_help=True)

_File = typer.Argument(
    metavar="FILE",
    exists=True,
    dir_okay=False,
    readable=True,
    help="A .npz, .csv, .tsv or .ts, the last three also as .gz; or a .parquet.",
)


class _Holds(StrEnum):
    SAMPLES = "samples"
    ARRAYS = "arrays"


class _Problem(StrEnum):
    CLASSIFICATION = "classification"
    REGRESSION = "regression"
    MULTILABEL = "multilabel"
    FORECASTING = "forecasting"


_OPTIONS: Mapping[str, str] = {
    "file": "FILE",
    "test": "--test",
    "name": "--name",
    "holds": "--holds",
    "problem": "--problem",
    "label": "--label",
    "unequal_lengths": "--pad",
    "missing": "--fill",
}
"""By part of an upload, the option that says it."""
_ADVICE: Mapping[str, str] = {
    'unequal_lengths: "pad"': "--pad",
    'missing: "mean"': "--fill",
    "label: ": "--label: ",
}

_USES: Mapping[_Holds, str] = {
    _Holds.SAMPLES: 'train on it by "task": {{"kind": "dataset", "id": "{id}"}}',
    _Holds.ARRAYS: "compress a network on it by "
    '"task": {{"kind": "model_outputs", "data": "{id}"}}',
}
"""What an upload is for, in words."""


@commands.command("list", epilog="Example: reflectory datasets list")
@asking
def list_datasets(
    asked: Asked,
    wide: WideOption = False,
    form: FormOption = None,
    sort: SortOption = None,
    limit: LimitOption = None,
) -> None:
    """List data sets, newest first."""
    wishes = Wishes(wide=wide, form=form, sort=sort, limit=limit)
    show_list(
        asked.client.datasets(), DATASETS, wishes, as_json=asked.as_json, nothing="no data sets"
    )


@commands.command(
    epilog="Example: reflectory datasets upload motions_TRAIN.ts --test motions_TEST.ts"
)
@asking
def upload(
    asked: Asked,
    file: Annotated[Path, _File],
    test: Annotated[
        Path | None,
        typer.Option(exists=True, dir_okay=False, help="The official test part, in a file."),
    ] = None,
    name: Annotated[str | None, typer.Option(help="By default the file's own.")] = None,
    holds: Annotated[
        _Holds,
        typer.Option(
            help="Samples to train on, or arrays in a .npz for the inputs of an ONNX network."
        ),
    ] = _Holds.SAMPLES,
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
) -> None:
    """Upload a data set and show what was found in it."""
    with (
        by_option(_OPTIONS, as_json=asked.as_json, advice=_ADVICE),
        transfer_bar(file.name, quiet=asked.as_json, afterwards="the server reads it") as told,
    ):
        dataset = asked.client.upload_dataset(
            file,
            test,
            name=name,
            holds=holds.value,
            problem=problem,
            label=label,
            unequal_lengths="pad" if pad else None,
            missing="mean" if fill else None,
            told=told,
        )
    asked.show(dataset, dataset_table(dataset), _USES[holds].format(id=dataset.id))


@commands.command(epilog="Example: reflectory datasets show 5d41402abc4b")
@asking
def show(asked: Asked, dataset_id: DatasetArgument) -> None:
    """Show what a data set holds."""
    dataset = asked.client.dataset(dataset_id)
    asked.show(dataset, dataset_table(dataset))


@commands.command(epilog="Example: reflectory datasets delete 5d41402abc4b")
@asking
def delete(asked: Asked, dataset_id: DatasetArgument, yes: YesOption = False) -> None:
    """Delete a data set that no running study uses."""
    dataset = asked.client.dataset(dataset_id)
    samples = f"{samples_of(dataset.facts):,} samples"
    confirm(
        f"Delete data set {described(dataset)} with {samples}",
        yes=yes,
        as_json=asked.as_json,
        undone="Nothing was deleted.",
    )
    asked.client.delete_dataset(dataset_id)
    asked.show({"deleted": dataset_id}, f"data set {dataset_id} is deleted")
