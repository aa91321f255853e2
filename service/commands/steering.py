"""`pause`, `resume`, `budget` and `delete`."""

from typing import Annotated

import typer

from service.answers import Study
from service.commands.connection import (
    DataDirOption,
    JsonOption,
    ServerOption,
    StudyArgument,
    connected,
    print_json,
)


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


def _show(study: Study, *, as_json: bool) -> None:
    if as_json:
        print_json(study)
    else:
        reason = f" ({study.state_reason})" if study.state_reason else ""
        typer.echo(f"study {study.id} is {study.state}{reason}")
