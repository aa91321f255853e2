"""What all commands that speak to a server share: which one, how to show an answer, how to fail."""

import json
import os
import sys
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from pydantic import BaseModel, ValidationError
from rich.console import Console

from service.client import Client, ClientError, Refused, Unreachable
from service.server_file import ServerFile
from service.settings import Settings

REFUSED = 3
UNREACHABLE = 4
UNFINISHED = 1
"""The study failed or was cancelled, or a download arrived damaged."""

_DEFAULT_SERVER = "http://127.0.0.1:8080"

ServerOption = Annotated[
    str | None,
    typer.Option(
        envvar="REFLECTORY_SERVER",
        metavar="URL",
        help="The server to speak to. By default the one that serves the data directory.",
    ),
]
DataDirOption = Annotated[
    Path | None,
    typer.Option(
        envvar="REFLECTORY_DATA_DIR", file_okay=False, help="The data directory of a local server."
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON, for programs to read.")]


@dataclass(frozen=True)
class Place:
    """Where a server is looked for, and what says so."""

    url: str
    source: str


def settings_from(**given: Any) -> Settings:
    """Settings from the environment and what was given on the command line (null: not given)."""
    try:
        return Settings(**{name: value for name, value in given.items() if value is not None})
    except ValidationError as error:
        faults = [
            f"setting {': '.join(map(str, (*fault['loc'], fault['msg'])))}"
            for fault in error.errors()
        ]
        raise typer.BadParameter("; ".join(faults)) from error


def find_server(server: str | None, data_dir: Path | None) -> Place:
    """The server that was named, or that of the data directory, or the default port."""
    if server is not None:
        return Place(server, "--server or REFLECTORY_SERVER names it")
    folder = settings_from(data_dir=data_dir).data_dir
    found = ServerFile.read(folder)
    if found is not None:
        return Place(found.url, f"server.json in {folder} names it")
    return Place(_DEFAULT_SERVER, f"it is the default, for no server serves {folder}")


@contextmanager
def connected(server: str | None, data_dir: Path | None, *, as_json: bool) -> Generator[Client]:
    """A client of the server; errors end the command with their exit code."""
    place = find_server(server, data_dir)
    try:
        with _client(place) as client:
            yield client
    except Refused as error:
        if as_json:
            typer.echo(error.problem.model_dump_json(), err=True)
        else:
            complain(*error.problem.sentences())
        raise typer.Exit(REFUSED) from error
    except Unreachable as error:
        ways = (
            f"why this address: {place.source}",
            "start a server with `reflectory serve`, or name another by --server URL",
        )
        fail(str(error), UNREACHABLE, as_json=as_json, ways=ways)
    except ClientError as error:
        fail(str(error), UNFINISHED, as_json=as_json)
    except BrokenPipeError:
        raise
    except OSError as error:
        fail(str(error), UNFINISHED, as_json=as_json)


def _client(place: Place) -> Client:
    try:
        return Client(place.url)
    except ValueError as error:
        raise typer.BadParameter(f"REFLECTORY_KEY: {error}") from error


def fail(message: str, code: int, *, as_json: bool, ways: tuple[str, ...] = ()) -> NoReturn:
    """End the command with a message, the ways out of it, and an exit code."""
    if as_json:
        detail = "; ".join((message, *ways))
        typer.echo(json.dumps({"title": "The command failed", "detail": detail}), err=True)
    else:
        complain(message, *ways)
    raise typer.Exit(code)


def complain(*lines: str) -> None:
    """Say what is wrong, on stderr."""
    console = Console(stderr=True, highlight=False, soft_wrap=True)
    for index, line in enumerate(lines):
        console.print(line if index == 0 else f"  {line}", style="red", markup=False)


def print_json(document: BaseModel | Any) -> None:
    """Print one JSON document on a line of its own."""
    if isinstance(document, BaseModel):
        typer.echo(document.model_dump_json(by_alias=True))
    else:
        typer.echo(json.dumps(document))


def is_terminal() -> bool:
    """Whether a person watches the output."""
    return sys.stdout.isatty() and os.environ.get("TERM") != "dumb"
