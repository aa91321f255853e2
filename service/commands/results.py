"""`front`, `importance`, `report` and `download`: what studies found; `catalog`: what they name."""

import webbrowser
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from service.answers import FrontPoint
from service.client import Client, Refused, Unfinished
from service.commands.arguments import AnyTrialArgument, StudyArgument
from service.commands.bars import transfer_bar
from service.commands.connection import (
    DataDirOption,
    JsonOption,
    ServerOption,
    complain,
    connected,
    print_json,
)
from service.commands.tables import catalog_tables, front_table, importance_tables
from service.files import write_whole


def front(
    study_id: StudyArgument,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print CSV.")] = False,
    latest: Annotated[
        bool,
        typer.Option("--latest", help="By the newest throughput of each, as `measure` found it."),
    ] = False,
    server: ServerOption = None,
    data_dir: DataDirOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show the Pareto front of a study, so far or final."""
    if as_csv and as_json:
        raise typer.BadParameter("--csv and --json exclude each other")
    throughput = "latest" if latest else "search"
    with connected(server, data_dir, as_json=as_json) as client:
        if as_csv:
            typer.echo(client.front_csv(study_id, throughput=throughput), nl=False)
            return
        found = client.front(study_id, throughput=throughput)
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


def report(
    study_id: StudyArgument,
    out: Annotated[
        Path | None,
        typer.Option(dir_okay=False, help="File to write; by default study-ID.html."),
    ] = None,
    show: Annotated[bool, typer.Option("--open", help="Open it in the browser.")] = False,
    server: ServerOption = None,
    data_dir: DataDirOption = None,
    as_json: JsonOption = False,
) -> None:
    """Write a study's report: one HTML page with its plots, that needs nothing else."""
    with connected(server, data_dir, as_json=as_json) as client:
        page = client.study_report(study_id)
        # The server's own word for the study: what the user wrote names no path.
        file = Path(f"study-{client.study(study_id).id}.html") if out is None else out
        write_whole(file, page)
    if as_json:
        print_json({"file": str(file)})
    else:
        typer.echo(file)
    if show and not webbrowser.open(file.absolute().as_uri()):
        complain("no browser was found; open the file by hand")


def download(
    study_id: StudyArgument,
    trial: AnyTrialArgument = None,
    out: Annotated[
        Path, typer.Option(file_okay=False, help="Folder to write into; made when missing.")
    ] = Path(),
    bundle: Annotated[
        bool, typer.Option("--bundle", help="The whole front as one ZIP file, ID.zip.")
    ] = False,
    server: ServerOption = None,
    data_dir: DataDirOption = None,
    as_json: JsonOption = False,
) -> None:
    """Download checkpoint, reports, ONNX file and dense file of one trial, or of the front's."""
    if bundle and trial is not None:
        raise typer.BadParameter("--bundle is the whole front; name no trial with it")
    with connected(server, data_dir, as_json=as_json) as client:
        if bundle:
            files = [_bundle(client, study_id, out, quiet=as_json)]
        elif trial is not None:
            out.mkdir(parents=True, exist_ok=True)
            dense = client.trial(study_id, trial).links.get("dense") is not None
            files = fetch(client, study_id, trial, out, quiet=as_json, dense=dense)
        else:
            files = front_files(client, study_id, out, quiet=as_json)
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
    client: Client,
    study_id: str,
    number: int,
    out: Path,
    *,
    quiet: bool = False,
    place: str = "",
    dense: bool,
) -> list[Path]:
    """Download a trial's checkpoint, report (JSON, CSV and HTML) and ONNX file into a folder.

    With `dense`, for trials that have one, its state dict of plain torch.nn layers too. An ONNX or
    dense file that cannot be had is complained of, and the rest is fetched all the same.
    """
    stem = f"trial-{number}"
    checkpoint = out / f"{stem}.safetensors"
    with transfer_bar(f"{checkpoint.name}{place}", quiet=quiet) as told:
        files = [client.download(study_id, number, checkpoint, told=told).path]
    for form in ("json", "csv", "html"):
        report = out / f"{stem}.report.{form}"
        write_whole(report, client.report(study_id, number, form=form))
        files.append(report)
    onnx = out / f"{stem}.onnx"
    try:
        with transfer_bar(f"{onnx.name}{place}", quiet=quiet) as told:
            files.append(client.onnx(study_id, number, onnx, told=told).path)
    except (Refused, Unfinished) as error:
        complain(f"trial {number} comes without an ONNX file: {error}")
    if dense:
        plain = out / f"{stem}.dense.safetensors"
        try:
            with transfer_bar(f"{plain.name}{place}", quiet=quiet) as told:
                files.append(client.dense(study_id, number, plain, told=told).path)
        except (Refused, Unfinished) as error:
            complain(f"trial {number} comes without a dense file: {error}")
    return files


def _bundle(client: Client, study_id: str, out: Path, *, quiet: bool) -> Path:
    # The server's own word for the study: what the user wrote names no path.
    file = f"{client.study(study_id).id}.zip"
    out.mkdir(parents=True, exist_ok=True)
    with transfer_bar(file, quiet=quiet) as told:
        return client.bundle(study_id, out / file, told=told).path


def front_files(client: Client, study_id: str, out: Path, *, quiet: bool) -> list[Path]:
    """Download the front as CSV and what `fetch` fetches of each of its points."""
    points = _kept(client.front(study_id).points)
    out.mkdir(parents=True, exist_ok=True)
    files = [out / "front.csv"]
    write_whole(files[0], client.front_csv(study_id))
    for place, point in enumerate(points, start=1):
        counted = f" ({place} of {len(points)})"
        dense = point.links.get("dense") is not None
        files += fetch(client, study_id, point.trial, out, quiet=quiet, place=counted, dense=dense)
    return files


def _kept(points: Sequence[FrontPoint]) -> list[FrontPoint]:
    """Those whose checkpoints are there; the others are named in a complaint."""
    for point in points:
        if point.links["checkpoint"] is None:
            complain(
                f"trial {point.trial} has no checkpoint: the study's retention did not keep it"
            )
    return [point for point in points if point.links["checkpoint"] is not None]
