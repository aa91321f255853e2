"""`pause` and `resume`."""

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


def _show(study: Study, *, as_json: bool) -> None:
    if as_json:
        print_json(study)
    else:
        reason = f" ({study.state_reason})" if study.state_reason else ""
        typer.echo(f"study {study.id} is {study.state}{reason}")
