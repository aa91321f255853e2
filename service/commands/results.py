"""`front`, `importance`, `report` and `download`: what studies found; `catalog`: what they name."""

import webbrowser
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from service.api.fronts.schemas import PointDocument
from service.client import Client, Damaged, Refused, Unfinished
from service.commands.arguments import AnyTrialArgument, StudyArgument
from service.commands.connection import UNFINISHED, Asked, asking, complain
from service.commands.shown.bars import transfer_bar
from service.commands.shown.tables import catalog_tables, front_table, importance_tables
from service.data_dir.whole_files import write_whole

_LOST = ("urn:reflectory:damaged-artifact", "urn:reflectory:no-artifact")
"""Problems that say of a file that its bytes are damaged or gone."""


@asking
def front(
    asked: Asked,
    study_id: StudyArgument,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print CSV.")] = False,
    latest: Annotated[
        bool,
        typer.Option("--latest", help="By the newest throughput of each, as `measure` found it."),
    ] = False,
) -> None:
    """Show the Pareto front of a study, so far or final."""
    if as_csv and asked.as_json:
        raise typer.BadParameter("--csv and --json exclude each other")
    throughput = "latest" if latest else "search"
    if as_csv:
        typer.echo(asked.client.front_csv(study_id, throughput=throughput), nl=False)
        return
    found = asked.client.front(study_id, throughput=throughput)
    asked.show(found, front_table(found, hyperparameters=Console().width >= 140))


@asking
def importance(asked: Asked, study_id: StudyArgument) -> None:
    """Show what each dimension of the space did to each objective, so far."""
    found = asked.client.importance(study_id)
    asked.show(found, *importance_tables(found))


@asking
def report(
    asked: Asked,
    study_id: StudyArgument,
    out: Annotated[
        Path | None,
        typer.Option(dir_okay=False, help="File to write; by default study-ID.html."),
    ] = None,
    show: Annotated[bool, typer.Option("--open", help="Open it in the browser.")] = False,
) -> None:
    """Write a study's report: one HTML page with its plots, that needs nothing else."""
    page = asked.client.study_report(study_id)
    # The server's own word for the study: what the user wrote names no path.
    file = Path(f"study-{asked.client.study(study_id).id}.html") if out is None else out
    write_whole(file, page, private=False)
    asked.show({"file": str(file)}, str(file))
    if show and not webbrowser.open(file.absolute().as_uri()):
        complain("no browser was found; open the file by hand")


@asking
def download(
    asked: Asked,
    study_id: StudyArgument,
    trial: AnyTrialArgument = None,
    out: Annotated[
        Path, typer.Option(file_okay=False, help="Folder to write into; made when missing.")
    ] = Path(),
    bundle: Annotated[
        bool, typer.Option("--bundle", help="The whole front as one ZIP file, ID.zip.")
    ] = False,
) -> None:
    """Download checkpoint, reports, ONNX file and dense file of one trial, or of the front's.

    Files whose bytes are damaged or gone on the server are named, the rest is saved, and the exit
    code is 1.
    """
    if bundle and trial is not None:
        raise typer.BadParameter("--bundle is the whole front; name no trial with it")
    if bundle:
        fetched = _bundle(asked.client, study_id, out, quiet=asked.as_json)
    elif trial is not None:
        out.mkdir(parents=True, exist_ok=True)
        dense = asked.client.trial(study_id, trial).links.get("dense") is not None
        fetched = fetch(asked.client, study_id, trial, out, quiet=asked.as_json, dense=dense)
    else:
        fetched = front_files(asked.client, study_id, out, quiet=asked.as_json)
    files = [str(file) for file in fetched.files]
    asked.show({"files": files, "lost": fetched.lost}, *files)
    end_if_lost(fetched)


@asking
def catalog(asked: Asked) -> None:
    """Show what a study may name: architectures, tasks, presets, samplers and the rest."""
    found = asked.client.catalog()
    asked.show(found, *catalog_tables(found))


@dataclass(frozen=True)
class Fetched:
    """What was downloaded, and what could not be."""

    files: list[Path] = field(default_factory=list[Path])
    lost: list[str] = field(default_factory=list[str])
    """Sentences on files whose bytes are damaged or gone; each was complained of."""

    def lose(self, sentence: str) -> None:
        """Complain of a file that cannot be had any more."""
        complain(sentence)
        self.lost.append(sentence)


def end_if_lost(fetched: Fetched) -> None:
    """End the command as one that did not do all it was asked for, if something was lost.

    Raises:
        typer.Exit: it was.
    """
    if fetched.lost:
        raise typer.Exit(UNFINISHED)


def fetch(
    client: Client,
    study_id: str,
    number: int,
    out: Path,
    *,
    quiet: bool = False,
    place: str = "",
    dense: bool,
) -> Fetched:
    """Download a trial's checkpoint, report (JSON, CSV and HTML) and ONNX file into a folder.

    With `dense`, for trials that have one, its state dict of plain torch.nn layers too. An ONNX or
    dense file that cannot be had is complained of, and the rest is fetched all the same.
    """
    stem = f"trial-{number}"
    checkpoint = out / f"{stem}.safetensors"
    fetched = Fetched()
    files = fetched.files
    try:
        with transfer_bar(f"{checkpoint.name}{place}", quiet=quiet) as told:
            files.append(client.download(study_id, number, checkpoint, told=told).path)
    except (Refused, Damaged) as error:
        if isinstance(error, Refused) and error.problem.type not in _LOST:
            raise
        fetched.lose(f"trial {number} comes without its checkpoint: {error}")
    for form in ("json", "csv", "html"):
        report = out / f"{stem}.report.{form}"
        write_whole(report, client.report(study_id, number, form=form), private=False)
        files.append(report)
    exports = [("onnx", "an ONNX file", client.onnx)]
    if dense:
        exports.append(("dense.safetensors", "a dense file", client.dense))
    for ending, what, ask in exports:
        export = out / f"{stem}.{ending}"
        try:
            with transfer_bar(f"{export.name}{place}", quiet=quiet) as told:
                files.append(ask(study_id, number, export, told=told).path)
        except (Refused, Unfinished) as error:
            complain(f"trial {number} comes without {what}: {error}")
    return fetched


def _bundle(client: Client, study_id: str, out: Path, *, quiet: bool) -> Fetched:
    # The server's own word for the study: what the user wrote names no path.
    file = f"{client.study(study_id).id}.zip"
    out.mkdir(parents=True, exist_ok=True)
    with transfer_bar(file, quiet=quiet) as told:
        got = client.bundle(study_id, out / file, told=told)
    fetched = Fetched([got.path])
    for one in got.missing:
        sentence = f"{file} comes without {one.file}: {one.reason}"
        if one.lost:
            fetched.lose(sentence)
        else:
            complain(sentence)
    return fetched


def front_files(client: Client, study_id: str, out: Path, *, quiet: bool) -> Fetched:
    """Download the front as CSV and what `fetch` fetches of each of its points."""
    points = _kept(client.front(study_id).points)
    out.mkdir(parents=True, exist_ok=True)
    fetched = Fetched([out / "front.csv"])
    write_whole(fetched.files[0], client.front_csv(study_id), private=False)
    for place, point in enumerate(points, start=1):
        counted = f" ({place} of {len(points)})"
        dense = point.links.get("dense") is not None
        of_trial = fetch(
            client, study_id, point.trial, out, quiet=quiet, place=counted, dense=dense
        )
        fetched.files.extend(of_trial.files)
        fetched.lost.extend(of_trial.lost)
    return fetched


def _kept(points: Sequence[PointDocument]) -> list[PointDocument]:
    """Those whose checkpoints are there; the others are named in a complaint."""
    for point in points:
        if point.links["checkpoint"] is None:
            complain(
                f"trial {point.trial} has no checkpoint: the study's retention did not keep it"
            )
    return [point for point in points if point.links["checkpoint"] is not None]
