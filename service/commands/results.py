"""`front`, `importance`, `download` and `catalog`."""

from pathlib import Path
from typing import Annotated, Protocol

import typer
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

from service.answers import Downloaded
from service.client import Client, Refused, Unfinished
from service.commands.connection import (
    DataDirOption,
    JsonOption,
    ServerOption,
    StudyArgument,
    complain,
    connected,
    is_terminal,
    print_json,
)
from service.commands.tables import catalog_tables, front_table, importance_tables
from service.downloads import ToldProgress
from service.files import write_whole


def front(
    study_id: StudyArgument,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print CSV.")] = False,
    server: ServerOption = None,
    data_dir: DataDirOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show the Pareto front of a study, so far or final."""
    if as_csv and as_json:
        raise typer.BadParameter("--csv and --json exclude each other")
    with connected(server, data_dir, as_json=as_json) as client:
        if as_csv:
            typer.echo(client.front_csv(study_id), nl=False)
            return
        found = client.front(study_id)
    if as_json:
        print_json(found)
        return
    console = Console()
    console.print(front_table(found, hyperparameters=console.width >= 140))


def importance(
    study_id: StudyArgument,
    server: ServerOption = None,
    data_dir: DataDirOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show what each dimension of the space did to each objective, so far."""
    with connected(server, data_dir, as_json=as_json) as client:
        found = client.importance(study_id)
    if as_json:
        print_json(found)
        return
    console = Console()
    for table in importance_tables(found):
        console.print(table)


def download(
    study_id: StudyArgument,
    trial: Annotated[
        int | None,
        typer.Argument(metavar="[TRIAL]", min=0, help="A trial's number; else the whole front."),
    ] = None,
    out: Annotated[
        Path, typer.Option(file_okay=False, help="Folder to write into; made when missing.")
    ] = Path(),
    server: ServerOption = None,
    data_dir: DataDirOption = None,
    as_json: JsonOption = False,
) -> None:
    """Download checkpoint, report and ONNX file of one trial, or of the whole front."""
    with connected(server, data_dir, as_json=as_json) as client:
        numbers = [trial] if trial is not None else _front_numbers(client, study_id)
        out.mkdir(parents=True, exist_ok=True)
        files: list[Path] = []
        if trial is None:
            table = out / "front.csv"
            write_whole(table, client.front_csv(study_id))
            files.append(table)
        for number in numbers:
            files.extend(fetch(client, study_id, number, out, quiet=as_json))
    if as_json:
        print_json({"files": [str(file) for file in files]})
        return
    for file in files:
        typer.echo(file)


def catalog(
    server: ServerOption = None, data_dir: DataDirOption = None, as_json: JsonOption = False
) -> None:
    """Show what a study may name: architectures, parametrizations, tasks, presets."""
    with connected(server, data_dir, as_json=as_json) as client:
        found = client.catalog()
    if as_json:
        print_json(found)
        return
    console = Console()
    for table in catalog_tables(found):
        console.print(table)


def fetch(
    client: Client, study_id: str, number: int, out: Path, *, quiet: bool = False
) -> list[Path]:
    """Download a trial's checkpoint, report (JSON, CSV and HTML) and ONNX file into a folder.

    An ONNX file that cannot be had is complained of, and the rest is fetched all the same.
    """
    stem = f"trial-{number}"
    files = [_file(client.download, study_id, number, out / f"{stem}.safetensors", quiet=quiet)]
    for form in ("json", "csv", "html"):
        report = out / f"{stem}.report.{form}"
        write_whole(report, client.report(study_id, number, form=form))
        files.append(report)
    try:
        files.append(_file(client.onnx, study_id, number, out / f"{stem}.onnx", quiet=quiet))
    except (Refused, Unfinished) as error:
        complain(f"trial {number} comes without an ONNX file: {error}")
    return files


class _Fetch(Protocol):
    """One of the client's ways to fetch a trial's file."""

    def __call__(
        self, study_id: str, number: int, out: Path, *, told: ToldProgress | None = None
    ) -> Downloaded: ...


def _file(fetching: _Fetch, study_id: str, number: int, out: Path, *, quiet: bool) -> Path:
    if quiet or not is_terminal():
        return fetching(study_id, number, out).path
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn())
    with Progress(*columns, TransferSpeedColumn(), transient=True) as progress:
        task = progress.add_task(out.name)

        def told(received: int, total: int | None) -> None:
            progress.update(task, completed=received, total=total)

        return fetching(study_id, number, out, told=told).path


def _front_numbers(client: Client, study_id: str) -> list[int]:
    """The front's trials whose checkpoints are there; the others are named in a complaint."""
    points = client.front(study_id).points
    for point in points:
        if point.links["checkpoint"] is None:
            complain(
                f"trial {point.trial} has no checkpoint: the study's retention did not keep it"
            )
    return [point.trial for point in points if point.links["checkpoint"] is not None]
