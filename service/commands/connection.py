"""What all commands that speak to a server share: which one, how to show an answer, how to fail."""

import inspect
import json
import os
import socket
import sys
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn, TypeVar
from urllib.parse import urlsplit

import typer

from service.data_dir.server_file import ServerFile
from service.data_home import default_data_dir

# What takes long to import is imported where it is needed: `list` and `--version` start at once.
if TYPE_CHECKING:
    from pydantic import BaseModel
    from rich.console import RenderableType

    from service.client import Client
    from service.http.problem_document import Problem
    from service.settings import Settings

_M = TypeVar("_M", bound="BaseModel")

REFUSED = 3
UNREACHABLE = 4
UNFINISHED = 1
"""The study failed or was cancelled, or a download arrived damaged."""

_LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})
_SECONDS = 1.0
"""To wait for an answer to a first try."""
_PORTS = {"http": 80, "https": 443}
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
SlotMemoryOption = Annotated[
    str | None,
    typer.Option(
        metavar="BYTES",
        help="Memory that one attempt may take, as 4GiB; by default an equal part of what is here.",
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON, for programs to read.")]


@dataclass(frozen=True)
class Place:
    """Where a server is looked for, and what says so."""

    url: str
    source: str
    pid: int | None = None
    """Of the server, where it is known."""
    is_guessed: bool = False
    """Whether nothing names it."""

    def may_begin_to_answer(self) -> bool:
        """Whether to try again: not where this machine refuses, and no server is about to start."""
        try:
            address = urlsplit(self.url)
        except ValueError:
            # It is no URL, as the client will say.
            return True
        if address.hostname not in _LOOPBACK or (self.pid is not None and _runs(self.pid)):
            return True
        try:
            port = address.port or _PORTS[address.scheme]
            socket.create_connection((address.hostname, port), _SECONDS).close()
        except ConnectionRefusedError:
            return False
        except (OSError, KeyError, ValueError):
            return True
        return True


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def settings_from(**given: Any) -> "Settings":
    """Settings from the environment and what was given on the command line (null: not given)."""
    # Only servers have settings: commands that ask one start without them.
    from pydantic import ValidationError

    from service.settings import Settings

    try:
        return Settings(**{name: value for name, value in given.items() if value is not None})
    except ValidationError as error:
        faults = [
            f"setting {': '.join(map(str, (*fault['loc'], fault['msg'])))}"
            for fault in error.errors()
        ]
        raise typer.BadParameter("; ".join(faults)) from error


def settings_of_server(**given: Any) -> "Settings":
    """Settings of a command that writes where a server keeps its files, for its owner alone."""
    from service.data_dir.private_files import PRIVATE

    os.umask(PRIVATE)
    return settings_from(**given)


def find_server(server: str | None, data_dir: Path | None) -> Place:
    """The server that was named, or that of the data directory, or the default port."""
    if server is not None:
        return Place(server, "--server or REFLECTORY_SERVER names it")
    folder = default_data_dir() if data_dir is None else data_dir
    found = ServerFile.read(folder)
    if found is not None:
        return Place(found.url, f"server.json in {folder} names it", found.pid)
    source = f"it is the default, for no server serves {folder}"
    return Place(_DEFAULT_SERVER, source, is_guessed=True)


@contextmanager
def connected(server: str | None, data_dir: Path | None, *, as_json: bool) -> "Generator[Client]":
    """A client of the server; errors end the command with their exit code."""
    from service.client import ClientError, Refused, Unreachable

    place = find_server(server, data_dir)
    try:
        with _client(place) as client:
            yield client
    except Refused as error:
        if as_json:
            typer.echo(error.problem.model_dump_json(exclude_none=True), err=True)
        else:
            complain(*problem_lines(error.problem))
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


@dataclass(frozen=True)
class Asked:
    """The server that a command asks, and whether the answer is for programs."""

    client: "Client"
    as_json: bool

    def show(self, document: "BaseModel | Any", *shown: "RenderableType") -> None:
        """Print the document for programs, or what people see of it: text as it is, and tables."""
        if self.as_json:
            print_json(document)
            return
        for one in shown:
            if isinstance(one, str):
                typer.echo(one)
            else:
                from rich.console import Console

                Console().print(one)

    def show_all(
        self,
        documents: Sequence[_M],
        table: "Callable[[Sequence[_M]], RenderableType]",
        *,
        nothing: str,
    ) -> None:
        """Print a list for programs, or a table of it, or that there is nothing."""
        if self.as_json:
            print_json([document.model_dump(mode="json") for document in documents])
        else:
            self.show(None, table(documents) if documents else nothing)


def asking(command: Callable[..., None]) -> Callable[..., None]:
    """A command that speaks to a server: its own parameters, and the options that name the server.

    It gets whole ids, whatever was typed in their places. Errors end it with their exit code.
    """

    @wraps(command, assigned=("__module__", "__name__", "__doc__"))
    def run(
        *,
        server: ServerOption = None,
        data_dir: DataDirOption = None,
        as_json: JsonOption = False,
        **given: Any,
    ) -> None:
        from service.commands.given.references import resolved

        with connected(server, data_dir, as_json=as_json) as client:
            command(Asked(client, as_json), **resolved(client, given))

    shared = list(inspect.signature(run, follow_wrapped=False).parameters.values())[:-1]
    own = list(inspect.signature(command).parameters.values())[1:]
    keyword = inspect.Parameter.KEYWORD_ONLY
    parameters = [one.replace(kind=keyword) for one in (*own, *shared)]
    # What typer reads.
    run.__signature__ = inspect.Signature(parameters)  # pyright: ignore[reportAttributeAccessIssue]
    run.__annotations__ = {one.name: one.annotation for one in parameters}
    return run


def _client(place: Place) -> "Client":
    from service.client import Client
    from service.client.connection import PATIENCE

    patience = PATIENCE if place.may_begin_to_answer() else 0.0
    try:
        return Client(place.url, patience=patience)
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


def problem_lines(problem: "Problem") -> list[str]:
    """A problem, line by line: what it is, then one line for each fault."""
    faults = [f"{one.path}: {one.message}" if one.path else one.message for one in problem.errors]
    # A detail that is made of the faults says nothing beside them.
    if faults and all(fault in problem.detail for fault in faults):
        return [problem.title, *faults]
    return problem.sentences()


def complain(*lines: str) -> None:
    """Say what is wrong, on stderr."""
    from rich.console import Console

    console = Console(stderr=True, highlight=False, soft_wrap=True)
    for index, line in enumerate(lines):
        console.print(line if index == 0 else f"  {line}", style="red", markup=False)


def print_json(document: "BaseModel | Any") -> None:
    """Print one JSON document on a line of its own."""
    if hasattr(document, "model_dump_json"):
        typer.echo(document.model_dump_json(by_alias=True))
    else:
        typer.echo(json.dumps(document))


def is_terminal() -> bool:
    """Whether a person watches the output."""
    return sys.stdout.isatty() and os.environ.get("TERM") != "dumb"
