"""`pause`, `resume`, `budget`, `priority`, `enqueue` and `delete`."""

from typing import Annotated

import typer
from pydantic import TypeAdapter, ValidationError

from service.answers import Study
from service.commands.arguments import StudyArgument
from service.commands.connection import (
    DataDirOption,
    JsonOption,
    ServerOption,
    connected,
    print_json,
)

_SCALAR: TypeAdapter[bool | int | float | str | None] = TypeAdapter(bool | int | float | str | None)


def pause(
    study_id: StudyArgument,
    server: ServerOption = None,
    data_dir: DataDirOption = None,
    as_json: JsonOption = False,
) -> None:
    """Hold a study: what trains stores where it is, and nothing is begun until it is resumed."""
    with connected(server, data_dir, as_json=as_json) as client:
        _show(client.pause(study_id), as_json=as_json)


def resume(
    study_id: StudyArgument,
    server: ServerOption = None,
    data_dir: DataDirOption = None,
    as_json: JsonOption = False,
) -> None:
    """Let a paused study go on where it was held."""
    with connected(server, data_dir, as_json=as_json) as client:
        _show(client.resume(study_id), as_json=as_json)


def budget(
    study_id: StudyArgument,
    trials: Annotated[int | None, typer.Option(help="Trials in all.")] = None,
    total_epochs: Annotated[int | None, typer.Option(help="Epochs over all trials.")] = None,
    wall_seconds: Annotated[float | None, typer.Option(help="Seconds in state running.")] = None,
    device_hours: Annotated[float | None, typer.Option(help="Slot shares times hours.")] = None,
    server: ServerOption = None,
    data_dir: DataDirOption = None,
    as_json: JsonOption = False,
) -> None:
    """Give a study another budget; a finished one runs on."""
    named = {
        "trials": trials,
        "total_epochs": total_epochs,
        "wall_seconds": wall_seconds,
        "device_hours": device_hours,
    }
    given = {name: value for name, value in named.items() if value is not None}
    if not given:
        raise typer.BadParameter("name at least one budget, such as --trials 50")
    with connected(server, data_dir, as_json=as_json) as client:
        _show(client.change_budget(study_id, **given), as_json=as_json)


def priority(
    study_id: StudyArgument,
    number: Annotated[
        int,
        typer.Argument(
            metavar="NUMBER",
            min=-100,
            max=100,
            help="The highest comes first; after -- if below 0.",
        ),
    ],
    server: ServerOption = None,
    data_dir: DataDirOption = None,
    as_json: JsonOption = False,
) -> None:
    """Let a study come before others, or after them, where slots become free."""
    with connected(server, data_dir, as_json=as_json) as client:
        _show(client.change_priority(study_id, number), as_json=as_json)


def enqueue(
    study_id: StudyArgument,
    architecture: Annotated[
        str | None, typer.Option(help="One of the study's, for a configuration of your own.")
    ] = None,
    parametrization: Annotated[str | None, typer.Option(help="Likewise.")] = None,
    given: Annotated[
        list[str] | None,
        typer.Option(
            "--param",
            "-p",
            metavar="NAME=VALUE",
            help="A hyperparameter, such as -p rnn.hidden_size=32; those left out are drawn.",
        ),
    ] = None,
    continues: Annotated[
        int | None,
        typer.Option(metavar="TRIAL", help="Go on from this trial's checkpoint instead."),
    ] = None,
    server: ServerOption = None,
    data_dir: DataDirOption = None,
    as_json: JsonOption = False,
) -> None:
    """Try a configuration of your own next, or go on from a trial; a finished study runs on."""
    hyperparameters = dict(map(_assignment, given or ()))
    with connected(server, data_dir, as_json=as_json) as client:
        if continues is not None:
            if architecture or parametrization or hyperparameters:
                raise typer.BadParameter("--continues takes the configuration over; name no other")
            number = client.continue_trial(study_id, continues)
        elif architecture is None or parametrization is None:
            raise typer.BadParameter("name --architecture and --parametrization, or --continues")
        else:
            number = client.enqueue(study_id, architecture, parametrization, hyperparameters)
    if as_json:
        print_json({"number": number})
    else:
        typer.echo(f"trial {number} of study {study_id} is tried next")


def delete(
    study_id: StudyArgument,
    server: ServerOption = None,
    data_dir: DataDirOption = None,
    as_json: JsonOption = False,
) -> None:
    """Delete a study that has ended, with all of its trials and files."""
    with connected(server, data_dir, as_json=as_json) as client:
        client.delete(study_id)
    if as_json:
        print_json({"deleted": study_id})
    else:
        typer.echo(f"study {study_id} is deleted")


def _assignment(text: str) -> tuple[str, bool | int | float | str | None]:
    """A hyperparameter by name: a JSON scalar, or else plain text."""
    name, separator, value = text.partition("=")
    if not separator or not name:
        raise typer.BadParameter(f"{text!r} is no NAME=VALUE, such as rnn.hidden_size=32")
    try:
        return name, _SCALAR.validate_json(value)
    except ValidationError:
        return name, value


def _show(study: Study, *, as_json: bool) -> None:
    if as_json:
        print_json(study)
    else:
        reason = f" ({study.state_reason})" if study.state_reason else ""
        typer.echo(f"study {study.id} is {study.state}{reason}")
