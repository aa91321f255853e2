"""`submit`, `watch`, `list`, `show` and `cancel`."""

import json
import sys
from pathlib import Path
from typing import Annotated, Any, cast

import typer
from rich.console import Console

from service.answers import Study, StudyState
from service.client import Client
from service.commands.arguments import StudyArgument
from service.commands.connection import (
    UNFINISHED,
    DataDirOption,
    JsonOption,
    ServerOption,
    connected,
    print_json,
)
from service.commands.following import follow, open_view
from service.commands.tables import dry_run_table, front_table, studies_table, study_table

_INTERRUPTED = 130


def submit(
    spec: Annotated[
        Path,
        typer.Argument(metavar="SPEC.json", help="The study's document; - reads it from stdin."),
    ],
    watch: Annotated[bool, typer.Option("--watch", help="Follow it until it has ended.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Check it and show the space; store nothing.")
    ] = False,
    server: ServerOption = None,
    data_dir: DataDirOption = None,
    as_json: JsonOption = False,
) -> None:
    """Submit a study."""
    document = read_spec(spec)
    with connected(server, data_dir, as_json=as_json) as client:
        if dry_run:
            answer = client.dry_run(document)
            if as_json:
                print_json(answer)
            else:
                Console().print(dry_run_table(answer))
            return
        study = client.submit(document)
        if as_json:
            print_json(study)
        else:
            show_links(client, study)
        if watch:
            follow_to_the_end(client, study, as_json=as_json)


def watch(
    study_id: StudyArgument,
    server: ServerOption = None,
    data_dir: DataDirOption = None,
    as_json: JsonOption = False,
) -> None:
    """Follow a study until it has ended. Ctrl-C leaves it running."""
    with connected(server, data_dir, as_json=as_json) as client:
        follow_to_the_end(client, client.study(study_id), as_json=as_json)


def list_studies(
    state: Annotated[StudyState | None, typer.Option(help="Only studies in this state.")] = None,
    server: ServerOption = None,
    data_dir: DataDirOption = None,
    as_json: JsonOption = False,
) -> None:
    """List studies, newest first."""
    with connected(server, data_dir, as_json=as_json) as client:
        studies = list(client.studies(state=state))
    if as_json:
        print_json([study.model_dump(mode="json") for study in studies])
    elif studies:
        Console().print(studies_table(studies))
    else:
        typer.echo("no studies")


def show(
    study_id: StudyArgument,
    server: ServerOption = None,
    data_dir: DataDirOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show one study: where it stands, how far it is, and where to look at it."""
    with connected(server, data_dir, as_json=as_json) as client:
        study = client.study(study_id)
        if as_json:
            print_json(study)
            return
        Console().print(study_table(study))
        show_links(client, study)


def cancel(
    study_id: StudyArgument,
    server: ServerOption = None,
    data_dir: DataDirOption = None,
    as_json: JsonOption = False,
) -> None:
    """Cancel a study: what waits and what runs ends, what is complete stays."""
    with connected(server, data_dir, as_json=as_json) as client:
        study = client.cancel(study_id)
    if as_json:
        print_json(study)
    elif study.ended:
        typer.echo(f"study {study.id} is {study.state}")
    else:
        typer.echo(f"study {study.id} is being cancelled")


def read_spec(path: Path) -> dict[str, Any]:
    """The JSON object in a file, or on stdin for `-`."""
    try:
        text = sys.stdin.read() if str(path) == "-" else path.read_text(encoding="utf-8")
        document: Any = json.loads(text)
    except json.JSONDecodeError as error:
        raise typer.BadParameter(f"{path} is no JSON: {error}") from error
    except (OSError, UnicodeDecodeError) as error:
        raise typer.BadParameter(f"{path} cannot be read: {error}") from error
    if not isinstance(document, dict):
        raise typer.BadParameter(f"{path} holds no JSON object")
    return cast("dict[str, Any]", document)


def show_links(client: Client, study: Study) -> None:
    """Say where to look at a study."""
    typer.echo(f"study {study.id} ({study.name}) is {study.state}")
    for name in ("page", "dashboard", "front"):
        if path := study.links.get(name):
            typer.echo(f"  {name:<11} {client.server}{path}")


def follow_to_the_end(client: Client, study: Study, *, as_json: bool) -> None:
    """Follow a study; the exit code says whether it finished."""
    try:
        if as_json:
            for event in client.watch(study.id):
                print_json(event)
            ended = client.study(study.id)
        else:
            with open_view(study) as view:
                ended = follow(client, study.id, view)
            front = client.front(study.id)
            console = Console()
            if front.points:
                console.print(front_table(front, hyperparameters=console.width >= 140))
            reason = f" ({ended.state_reason})" if ended.state_reason else ""
            typer.echo(f"study {ended.id} is {ended.state}{reason}")
    except KeyboardInterrupt:
        typer.echo(
            f"\nThe study goes on. See it again: reflectory watch {study.id}; "
            f"end it: reflectory cancel {study.id}",
            err=True,
        )
        raise typer.Exit(_INTERRUPTED) from None
    if ended.state != "finished":
        raise typer.Exit(UNFINISHED)
