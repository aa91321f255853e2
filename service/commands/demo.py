"""`demo`: the whole way of a user, from an empty data directory to the best model's files."""

import json
import os
import subprocess
import sys
import sysconfig
from collections.abc import Generator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import IO, Annotated

import typer
from rich.console import Console

from service.api.fronts.schemas import PointDocument
from service.api.studies.schemas import StudyDocument
from service.client import Client
from service.commands.connection import UNFINISHED, complain, connected
from service.commands.results import end_if_lost, fetch
from service.commands.shown.following import follow, open_view
from service.commands.shown.tables import front_table, shown
from service.commands.studies import links_of, read_spec

_STOP_SECONDS = 30.0
_TAIL_LINES = 30


class _ServerFailed(Exception):
    """The server did not start, or did not stop in order."""


def demo(
    spec: Annotated[Path, typer.Argument(metavar="SPEC.json", help="The study's document.")],
    out: Annotated[
        Path, typer.Option(file_okay=False, help="Folder for the data and the results.")
    ] = Path("demo-output"),
) -> None:
    """Start a server of its own, run a study on it, download the best model, and stop."""
    document = read_spec(spec)
    folder = out / f"{datetime.now():%Y%m%d-%H%M%S-%f}"
    folder.mkdir(parents=True)
    log = folder / "server.log"
    try:
        with _server(folder / "data", log) as url, connected(url, None, as_json=False) as client:
            study = client.submit(document)
            typer.echo(links_of(client, study))
            with open_view(study) as view:
                study = follow(client, study.id, view)
            files = _conclude(client, study, folder / "best")
    except (_ServerFailed, typer.Exit) as error:
        if isinstance(error, _ServerFailed):
            complain(str(error))
        complain(f"The end of the server's log, {log}:", *_tail(log))
        raise typer.Exit(UNFINISHED) from error
    typer.echo("The server has stopped. Written:")
    for file in files:
        typer.echo(f"  {file}")
    program = os.path.relpath(Path(sysconfig.get_path("scripts")) / "reflectory")
    typer.echo(f"Look at the study again: {program} serve --data-dir {folder / 'data'}")


def _conclude(client: Client, study: StudyDocument, out: Path) -> list[Path]:
    """Show the front and fetch its best point.

    Raises:
        typer.Exit: the study did not finish with a front.
    """
    front = client.front(study.id)
    best = front.best()
    if study.state != "finished" or best is None:
        complain(
            f"study {study.id} is {study.state}: {study.state_reason or 'no trial is complete'}"
        )
        raise typer.Exit(UNFINISHED)
    console = Console()
    console.print(front_table(front, hyperparameters=console.width >= 140))
    metric = front.objectives[0].metric
    typer.echo(f"Best {metric}: {_told(best)}")
    out.mkdir()
    fetched = fetch(client, study.id, best.trial, out)
    end_if_lost(fetched)
    return fetched.files


def _told(point: PointDocument) -> str:
    values = point.values
    return (
        f"{shown(values.get('quality'), 'quality')} on validation, "
        f"{shown(point.test_quality, 'quality')} on test: trial {point.trial}, "
        f"{point.architecture} with {point.parametrization}, "
        f"{shown(values.get('parameters'), 'parameters')} parameters"
    )


@contextmanager
def _server(data_dir: Path, log: Path) -> Generator[str]:
    """A server on a free port, from when it is ready until it has stopped; gives its URL."""
    command = [sys.executable, "-P", "-m", "service.cli", "serve", "--port", "0", "--json"]
    with log.open("wb") as file:
        process = subprocess.Popen(
            [*command, "--data-dir", str(data_dir)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=file,
            text=True,
            # Ctrl-C in the terminal reaches this process alone, which then ends the server.
            process_group=0,
        )
        assert process.stdout is not None
        try:
            typer.echo("The server starts ...")
            yield _first_url(process, process.stdout)
        finally:
            process.terminate()
            process.stdout.close()
            try:
                status = process.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                status = process.wait()
        if status != 0:
            raise _ServerFailed(f"The server ended with status {status}.")


def _first_url(process: subprocess.Popen[str], stdout: IO[str]) -> str:
    line = stdout.readline()
    if not line:
        raise _ServerFailed(f"The server did not start: it ended with status {process.wait()}.")
    return str(json.loads(line)["url"])


def _tail(log: Path) -> list[str]:
    return log.read_text(errors="replace").splitlines()[-_TAIL_LINES:]
